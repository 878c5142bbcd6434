"""Who reaches a kernel: the public functions above it, their callers in order, and the tests among them. Plain reads."""

from __future__ import annotations

from kgagent.graph import Graph
from kgagent.ingest.launches import TEST_PATH
from kgagent.ingest.records import Caller, KernelCallers, Place

MAX_HOPS = 20  # tokamax puts 14 relations between its public attention and the kernel
MAX_CALLERS = 2_000  # a kernel under jax.numpy is reached by everything; what lies further is counted as cut


def kernel_callers(graph: Graph, kernel: str) -> KernelCallers:
    """Walk calls, uses and wraps backwards from a kernel, nearest first."""
    start = graph.need(kernel).key
    seen, frontier = {start}, [start]
    found: list[Caller] = []
    cut = False
    for hop in range(1, MAX_HOPS + 1):
        following: list[int] = []
        for key in frontier:
            rows = graph.rows(
                """SELECT n.key, n.id, e.how, coalesce(s.root || '/' || f.path, ''), coalesce(n.line_start, 0), coalesce(f.path, ''),
                          coalesce(json_extract(n.data, '$.kind'), '')
                   FROM edge e JOIN node n ON n.key = e.src LEFT JOIN file f ON f.key = n.file LEFT JOIN source s ON s.key = f.source
                   WHERE e.dst = ? AND e.type IN ('calls', 'uses', 'wraps') AND n.kind = 'symbol' ORDER BY n.id""",
                key,
            )
            for caller, id_, how, file, line, path, kind in rows:
                if caller in seen:
                    continue
                if len(seen) > MAX_CALLERS:
                    cut = True
                    break
                seen.add(caller)
                following.append(caller)
                if kind != "module":
                    found.append(Caller(Place(id_, file, line, how), hop, is_public(id_), bool(TEST_PATH.search(path))))
        frontier = following
    return KernelCallers(
        kernel, tuple(c for c in found if not c.is_test), tuple(c for c in found if c.is_public and not c.is_test), tuple(c for c in found if c.is_test), cut
    )


def is_public(id_: str) -> bool:
    """No part of its dotted name is private."""
    return not any(part.startswith("_") for part in id_.removeprefix("sym:").split("."))
