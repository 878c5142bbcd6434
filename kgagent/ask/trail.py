"""Steps along edges in bulk, and the ground a finding stands on: the edges it walked and the lines it may cite."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kgagent.ask.records import Citation, Finding
from kgagent.graph import Edge, Graph, Node
from kgagent.graph.store import EDGE_COLUMNS, NODE_COLUMNS, edge_of, node_of
from kgagent.objects import sha256_hex

BATCH = 4000  # rows of one step; a hub's further edges are not read


@dataclass(frozen=True, slots=True)
class Step:
    """An edge and the node at its far end."""

    edge: Edge
    node: Node


def steps(graph: Graph, keys: Iterable[int], types: Sequence[str], *, back: bool = False, kind: str | None = None) -> list[Step]:
    """Every edge of these types out of (or, `back`, into) these nodes, oldest first."""
    mine, other = ("dst", "src") if back else ("src", "dst")
    # the + keeps SQLite from starting at every node of the kind instead of at the edges
    kind_sql, kind_values = ("AND +n.kind = ?", (kind,)) if kind else ("", ())
    rows = graph.rows(
        f"""SELECT {EDGE_COLUMNS}, {NODE_COLUMNS} FROM edge e JOIN node a ON a.key = e.src JOIN node b ON b.key = e.dst JOIN node n ON n.key = e.{other}
            WHERE e.{mine} IN (SELECT value FROM json_each(?)) AND e.type IN (SELECT value FROM json_each(?)) {kind_sql} ORDER BY e.key LIMIT {BATCH}""",
        json.dumps(sorted(set(keys))), json.dumps(list(types)), *kind_values,
    )  # fmt: skip
    return [Step(edge_of(row[:9]), node_of(row[9:])) for row in rows]


class Disk:
    """Which lines exist at this moment; what doesn't is dropped, and said once a file."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._lines: dict[str, int | None] = {}
        self.notes: dict[str, None] = {}

    def cite(self, path: str | None, line: int | None, end: int | None, node: str, note: str = "") -> Citation | None:
        """The citation, or None where the file is gone or too short for it."""
        if not path or not line or line < 1:
            return None
        if path not in self._lines:
            self._lines[path] = self._count(path)
        have = self._lines[path]
        last = max(line, end or line)
        if have is None:
            self.notes[f"{path} can't be read any more; what cited it is given without that line"] = None
            return None
        if last > have:
            self.notes[f"{path} has {have} lines now; a citation of line {last} was dropped"] = None
            return None
        return Citation(path, line, last, node, note)

    def _count(self, path: str) -> int | None:
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                return None  # opening a pipe would wait for somebody to write
            with open(path, "rb") as handle:
                data = handle.read()
                mtime_ns = os.fstat(handle.fileno()).st_mtime_ns
        except OSError:
            return None
        root_rows = self._graph.rows(
            """SELECT f.sha, f.mtime_ns FROM source s JOIN file f ON f.source = s.key
               WHERE substr(?1, 1, length(s.root) + 1) = s.root || '/' AND f.path = substr(?1, length(s.root) + 2)""",
            path,
        )
        # concept pages are synced by themselves, and rendering the vault adds to their ends
        ours = path.startswith(f"{self._graph.workspace.wiki}/")
        if not ours and root_rows and all(row[1] != mtime_ns for row in root_rows):
            sha = sha256_hex(data)
            if all(row[0] != sha for row in root_rows):
                self.notes[f"{path} changed since it was ingested; its lines may have moved (kgagent ingest it again)"] = None
        return data.count(b"\n") + (0 if data.endswith(b"\n") or not data else 1)


class Ground:
    """Collects what one finding rests on; a finding without an edge is a mistake and is not made."""

    def __init__(self, graph: Graph, disk: Disk) -> None:
        self._graph = graph
        self._disk = disk
        self._edges: dict[int, Edge] = {}
        self._nodes: dict[str, None] = {}
        self._citations: dict[tuple[str, int, int, str], tuple[Citation, dict[str, None]]] = {}

    def rest(self, *edges: Edge) -> Ground:
        """Rest on these edges, and name both their ends."""
        for edge in edges:
            self._edges[edge.key] = edge
            self._nodes[edge.src] = None
            self._nodes[edge.dst] = None
        return self

    def about(self, *nodes: Node) -> Ground:
        """Name nodes first in the finding's list."""
        self._nodes = dict.fromkeys([*(node.id for node in nodes), *self._nodes])
        return self

    def cite(self, path: str | None, line: int | None, end: int | None, node: str, note: str = "") -> Ground:
        """Cite a place if it exists; cited again, what is seen there is listed once."""
        citation = self._disk.cite(path, line, end, node, note)
        if citation is not None:
            place = (citation.path, citation.line, citation.end_line, citation.node)
            _, notes = self._citations.setdefault(place, (citation, {}))
            notes |= {note: None} if note else {}
        return self

    def cite_node(self, node: Node, note: str = "") -> Ground:
        """Cite the span a node stands on."""
        return self.cite(node.path, node.line_start, node.line_end, node.id, note)

    def finding(self, kind: str, text: str, strength: str) -> list[Finding]:
        """The finding, or nothing where no edge carries it."""
        if not self._edges:
            return []
        edges = sorted(self._edges.values(), key=lambda edge: edge.key)
        triples = tuple(f"{edge.src} {edge.type} {edge.dst}" for edge in edges)
        citations = tuple(replace(citation, note=", ".join(notes)) for citation, notes in self._citations.values())
        return [Finding(kind, text, strength, tuple(self._nodes), citations, tuple(edge.key for edge in edges), triples)]
