"""What was ingested, as frozen rows: sources and kernels. Plain reads; nothing heavy is imported."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import Any

from kgagent.graph import Graph
from kgagent.graph.words import split_identifier
from kgagent.ingest.records import FETCHED, KernelRow, Place, SourceRow, Tunable


def list_sources(graph: Graph) -> tuple[SourceRow, ...]:
    """Every ingested source, first ingested first."""
    rows = []
    for key, name, locator, root, revision, at, text in graph.rows(
        """SELECT s.key, n.name, s.locator, s.root, s.revision, s.ingested_at, s.data FROM source s JOIN node n ON n.key = s.key
           WHERE n.made_by = 'ingest' ORDER BY s.key"""
    ):
        data = json.loads(text)
        files = graph.value("SELECT count(*) FROM file WHERE source = ?", key)
        age = datetime.now(UTC) - datetime.fromisoformat(at)
        rows.append(
            SourceRow(
                name,
                locator,
                root,
                revision,
                at,
                age.total_seconds() / 86400,
                files,
                len(data.get("skipped", ())),
                data.get("symbols", 0),
                data.get("kernels", 0),
                data.get("calls", 0),
                data.get("unresolved", 0) / max(1, data.get("calls", 0)),
                staleness(graph, key, root, locator),
            )
        )
    return tuple(rows)


def staleness(graph: Graph, source: int, root: str, locator: str) -> str:
    """Why a source should be read again; '' when every file on disk still is what was read."""
    if locator.partition(":")[0] in FETCHED:
        return ""
    if not os.path.isdir(root):
        return f"{root} is gone"
    changed = 0
    for path, size, mtime in graph.rows("SELECT path, bytes, mtime_ns FROM file WHERE source = ?", source):
        try:
            status = os.stat(os.path.join(root, path))
        except OSError:
            changed += 1
            continue
        changed += status.st_size != size or (mtime != 0 and status.st_mtime_ns != mtime)
    return f"{changed} files changed; kgagent ingest {locator}" if changed else ""


KERNELS = """SELECT n.id, n.name, n.key, n.data, s.id, src.root, f.path, k.launch_line, k.api, k.backend, k.backend_how, k.body_how, k.body_text, k.grid,
                    k.body, k.wrapper, n.words
             FROM kernel k JOIN node n ON n.key = k.key JOIN file f ON f.key = k.launch_file JOIN source src ON src.key = f.source
             JOIN node s ON s.key = src.key ORDER BY s.id, f.path, k.launch_line, n.id"""


def list_kernels(graph: Graph, backend: str | None = None, family: str | None = None) -> tuple[KernelRow, ...]:
    """All kernels, or those on a backend, or those whose name, path, wrapper or concepts carry every word of `family`."""
    wanted = split_identifier(family).split() if family else []
    rows = []
    for id_, name, key, text, source, root, path, line, api, on, on_how, body_how, body_text, grid, body, wrapper, words in graph.rows(KERNELS):
        if backend and on != backend:
            continue
        data = json.loads(text) if text else {}
        body_place = place(graph, body, body_how)
        wrapper_place = place(graph, wrapper, "exact")
        if wanted and not in_family(graph, key, wanted, f"{words} {path} {name} {wrapper_place or ''} {body_place or ''}"):
            continue
        rows.append(
            KernelRow(
                id_,
                name,
                source.removeprefix("src:"),
                f"{root}/{path}",
                path,
                line,
                api,
                on,
                on_how,
                body_place,
                body_how,
                body_text,
                tuple(data.get("bodies", ())),
                wrapper_place,
                tunables(graph, key),
                grid,
                data.get("form", ""),
                bool(data.get("test")),
            )
        )
    return (*rows, *catalogued(graph, backend, wanted))


CATALOGUED = """SELECT n.id, n.name, n.key, n.data, s.id, src.root, f.path, n.line_start, n.words FROM node n JOIN file f ON f.key = n.file
                JOIN source src ON src.key = f.source JOIN node s ON s.key = src.key
                WHERE n.kind = 'kernel' AND NOT EXISTS (SELECT 1 FROM kernel k WHERE k.key = n.key) ORDER BY s.id, f.path, n.line_start"""


def catalogued(graph: Graph, backend: str | None, wanted: list[str]) -> list[KernelRow]:
    """Kernels known from a catalogue alone: their place is the catalogue's row."""
    rows = []
    for id_, name, key, text, source, root, path, line, words in graph.rows(CATALOGUED):
        data = json.loads(text) if text else {}
        if (backend and data.get("backend") != backend) or (wanted and not in_family(graph, key, wanted, f"{words} {path} {name}")):
            continue
        rows.append(
            KernelRow(
                id_, name, source.removeprefix("src:"), f"{root}/{path}", path, line, "", data.get("backend", "unresolved"), "unresolved", None, "unresolved",
                "", (), None, (), "", "catalogue", False,
            )
        )  # fmt: skip
    return rows


def place(graph: Graph, key: int | None, how: str) -> Place | None:
    """Where a symbol stands; an external one stands nowhere we know."""
    if key is None:
        return None
    rows = graph.rows(
        """SELECT n.id, s.root || '/' || f.path, n.line_start FROM node n LEFT JOIN file f ON f.key = n.file LEFT JOIN source s ON s.key = f.source
           WHERE n.key = ?""",
        key,
    )
    id_, file, line = rows[0]
    return Place(id_, file or "", line or 0, how)


def tunables(graph: Graph, kernel: int) -> tuple[Tunable, ...]:
    rows: list[tuple[Any, ...]] = graph.rows(
        """SELECT n.id, n.name, s.root || '/' || f.path, n.line_start, json_extract(n.data, '$.default'), e.how
           FROM edge e JOIN node n ON n.key = e.src JOIN file f ON f.key = n.file JOIN source s ON s.key = f.source
           WHERE e.dst = ? AND e.type = 'tunes' ORDER BY f.path, n.line_start, n.id""",
        kernel,
    )
    return tuple(Tunable(id_, name, file, line, default or "", how) for id_, name, file, line, default, how in rows)


def in_family(graph: Graph, kernel: int, wanted: list[str], text: str) -> bool:
    """Words first; else a concept its body, wrapper or launch mentions."""
    words = set(split_identifier(text).split())
    if all(word in words for word in wanted):
        return True
    concepts = graph.rows(
        """SELECT DISTINCT c.id FROM edge t JOIN edge m ON m.src = t.src AND m.type = 'mentions' JOIN node c ON c.key = m.dst
           WHERE t.dst = ? AND t.type IN ('implements', 'wraps') AND c.kind = 'concept'""",
        kernel,
    )
    return any(all(word in split_identifier(id_).split() for word in wanted) for (id_,) in concepts)
