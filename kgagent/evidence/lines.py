"""From a source position in HLO to the innermost ingested symbol that holds it, so that evidence lights up the graph.

HLO names files as the tracing machine saw them: an ingested source's own root decides first, the longest common ending second.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from kgagent.evidence.frames import Frame
from kgagent.graph.records import NewEdge, NewNode
from kgagent.graph.store import Graph

MADE_BY = "evidence"
_LEAST_ENDING = 2  # path components: `candidate.py` alone could be anybody's


@dataclass(frozen=True, slots=True)
class Place:
    """Where a position lies in the graph."""

    file_key: int
    symbol: str | None
    how: str  # exact: the same root; inferred: the same ending


def line_id(frame: Frame) -> str:
    """The node of a position, by the path that HLO gives it."""
    return f"line:{frame.file}#L{frame.line}"


def line_node(frame: Frame) -> NewNode:
    """A position as a node; it stands on no ingested file, since sources come and go."""
    name = f"{PurePosixPath(frame.file).name}:{frame.line}"
    return NewNode(line_id(frame), "line", name, MADE_BY, data={"path": frame.file, "line": frame.line, "function": frame.function})


class Symbols:
    """Looks positions up; each file is resolved once."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.roots = [(int(key), str(root).rstrip("/")) for key, root in graph.rows("SELECT key, root FROM source")]
        self._files: dict[str, tuple[int, str] | None] = {}

    def at(self, file: str, line: int) -> Place | None:
        """The innermost symbol whose span holds the line; None for a file nobody ingested."""
        found = self.file(file)
        if found is None:
            return None
        key, how = found
        rows = self.graph.rows(
            """SELECT id FROM node WHERE file = ? AND kind = 'symbol' AND line_start <= ? AND line_end >= ?
               ORDER BY line_end - line_start, line_start DESC, key LIMIT 1""",
            key, line, line,
        )  # fmt: skip
        return Place(key, rows[0][0] if rows else None, how)

    def file(self, path: str) -> tuple[int, str] | None:
        """The ingested file a path means, and how that is known."""
        if path not in self._files:
            self._files[path] = self._by_root(path) or self._by_ending(path)
        return self._files[path]

    def _by_root(self, path: str) -> tuple[int, str] | None:
        for source, root in self.roots:
            if path.startswith(root + "/"):
                key = self.graph.value("SELECT key FROM file WHERE source = ? AND path = ?", source, path[len(root) + 1 :])
                if key is not None:
                    return int(key), "exact"
        return None

    def _by_ending(self, path: str) -> tuple[int, str] | None:
        """The file with the longest common ending; two equally good ones decide nothing."""
        parts = path.split("/")
        name = parts[-1].replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_")
        rows = self.graph.rows(
            r"""SELECT f.key, s.root || '/' || f.path FROM file f JOIN source s ON s.key = f.source
                WHERE f.path = ? OR f.path LIKE ? ESCAPE '\'""",
            parts[-1], f"%/{name}",
        )  # fmt: skip
        scored = sorted(((_common_ending(parts, str(other).split("/")), int(key)) for key, other in rows), reverse=True)
        if not scored or scored[0][0] < _LEAST_ENDING or (len(scored) > 1 and scored[0][0] == scored[1][0]):
            return None
        return scored[0][1], "inferred"


def _common_ending(a: list[str], b: list[str]) -> int:
    count = 0
    for left, right in zip(reversed(a), reversed(b), strict=False):
        if left != right:
            break
        count += 1
    return count


def link_lines(graph: Graph) -> int:
    """Tie every line node to its symbol again, as after an ingest; returns how many have one."""
    symbols = Symbols(graph)
    edges = []
    for id_, path, line in graph.rows("SELECT id, json_extract(data, '$.path'), json_extract(data, '$.line') FROM node WHERE kind = 'line'"):
        place = symbols.at(str(path), int(line))
        if place is not None and place.symbol is not None:
            edges.append(NewEdge(id_, "within", place.symbol, MADE_BY, how=place.how))
    with graph.transaction():
        graph.execute("DELETE FROM edge WHERE type = 'within' AND src IN (SELECT key FROM node WHERE kind = 'line')")
        graph.put_edges(edges)
    return len(edges)
