"""Flags in the graph, each held against the installed libtpu at the moment of asking: it may have been upgraded since."""

from __future__ import annotations

from fnmatch import fnmatchcase

from kgagent.graph import Graph
from kgagent.ingest.flags import UNCHECKED, library
from kgagent.ingest.records import FlagRow, FlagUse


def list_flags(graph: Graph, pattern: str = "*") -> tuple[FlagRow, ...]:
    """Flags whose name matches a shell pattern (or contains it), with where they are used."""
    wanted = pattern if any(mark in pattern for mark in "*?[") else f"*{pattern}*"
    libtpu = library(graph.workspace)
    rows = []
    for key, name in graph.rows("SELECT key, name FROM node WHERE kind = 'flag' ORDER BY name"):
        if not fnmatchcase(name, wanted):
            continue
        uses = graph.rows(
            """SELECT a.id, s.root || '/' || f.path, e.line, coalesce(json_extract(e.data, '$.value'), '') FROM edge e JOIN node a ON a.key = e.src
               LEFT JOIN file f ON f.key = e.file LEFT JOIN source s ON s.key = f.source WHERE e.dst = ? AND e.type = 'uses' ORDER BY 2, 3, 1""",
            key,
        )
        status, moved_to = libtpu.status(name) if libtpu is not None else (UNCHECKED, "")
        how = f"its name {'stands' if status == 'known' else 'does not stand'} in libtpu {libtpu.version}" if libtpu is not None else "no libtpu is installed"
        rows.append(FlagRow(f"flag:{name}", name, status, moved_to, how, tuple(FlagUse(*use) for use in uses)))
    return tuple(rows)
