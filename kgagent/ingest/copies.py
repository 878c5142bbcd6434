"""Kernels that are copies or near copies of another source's: bodies compared by sketches of their lines.

A sketch is the smallest hashes of all three-line runs, so two sketches overlap about as much as the bodies do.
"""

from __future__ import annotations

import json
import re
import zlib
from itertools import combinations

from kgagent.graph import Graph

SKETCH = 48
RUN_LINES = 3
LEAST_LINES = 8  # shorter bodies are alike by chance
NEAR = 0.5  # of the sketch; below it two kernels share idioms, not text
NEAR_NAMED_ALIKE = 0.15  # measured over 12 packages: all pairs above it whose bodies have one specific name are copies, later edited
MAX_NAMESAKES = 4  # bodies of one name in one source; beyond, the name tells nothing (`kernel` has 20, a family of variants up to 4)
NO_NAMES: frozenset[str] = frozenset()
_TOKEN = re.compile(r"\w+|[^\w\s]")


def sketch(lines: list[str]) -> list[int]:
    """The sketch of a body; [] where it is too short. Comments, blank lines and spacing don't count."""
    plain = []
    for line in lines:
        tokens = _TOKEN.findall(line.split("#", 1)[0])
        if tokens:
            plain.append(" ".join(tokens))
    if len(plain) < LEAST_LINES:
        return []
    runs = {zlib.crc32("\n".join(plain[i : i + RUN_LINES]).encode()) for i in range(len(plain) - RUN_LINES + 1)}
    return sorted(runs)[:SKETCH]


def likeness(one: list[int], other: list[int]) -> float:
    """The estimated share of runs two bodies have in common."""
    smallest = sorted({*one, *other})[:SKETCH]
    both = set(one) & set(other)
    return sum(value in both for value in smallest) / len(smallest) if smallest else 0.0


def tie_copies(graph: Graph) -> None:
    """`vendored_from` between kernels of different sources, as the graph now is: from the later source to the earlier, and never from jax."""
    graph.execute("DELETE FROM edge WHERE type = 'vendored_from' AND made_by = 'ingest'")
    rows = graph.rows(
        """SELECT n.key, n.source, s.name, json_extract(n.data, '$.sketch'), n.file, n.line_start FROM kernel k JOIN node n ON n.key = k.key
           JOIN node s ON s.key = n.source WHERE json_extract(n.data, '$.sketch') IS NOT NULL ORDER BY n.id"""
    )
    kernels = [(key, source, name == "jax" or name.startswith("jax."), json.loads(text), file, line) for key, source, name, text, file, line in rows]
    names = specific_names(graph)
    holders: dict[int, list[int]] = {}
    for index, kernel in enumerate(kernels):
        for value in kernel[3]:
            holders.setdefault(value, []).append(index)
    pairs = {pair for sharing in holders.values() if len(sharing) < 50 for pair in combinations(sharing, 2)}
    for first, second in sorted(pairs):
        one, other = kernels[first], kernels[second]
        if one[1] == other[1]:
            continue
        share = likeness(one[3], other[3])
        alike = names.get(one[0], NO_NAMES) & names.get(other[0], NO_NAMES)
        if share < (NEAR_NAMED_ALIKE if alike else NEAR):
            continue
        copy, origin = sorted((one, other), key=lambda k: (k[2], -k[1]))
        graph.execute(
            """INSERT OR IGNORE INTO edge(src, type, dst, file, line, how, made_by, data) VALUES (?, 'vendored_from', ?, ?, ?, ?, 'ingest', ?)""",
            copy[0], origin[0], copy[4], copy[5], "exact" if share == 1.0 else "inferred", json.dumps({"likeness": round(share, 2)}),
        )  # fmt: skip


def specific_names(graph: Graph) -> dict[int, frozenset[str]]:
    """Kernel → what its body is called, alone and inside the functions around it, as far as that tells it from other bodies.

    A name of one word never does: with few kernels in the graph even `kernel` would look rare.
    """
    bodies: dict[int, frozenset[str]] = {}
    owners: dict[tuple[str, int], set[int]] = {}
    for kernel, body, source, id_, module in graph.rows(
        """SELECT k.key, b.key, b.source, b.id, m.name FROM kernel k JOIN node b ON b.key = k.body JOIN module m ON m.file = b.file"""
    ):
        qual = id_.removeprefix(f"sym:{module}.").partition("~")[0]
        bodies[kernel] = frozenset(name for name in (qual, qual.rsplit(".", 1)[-1]) if re.search(r"[^\W_][._]+[^\W_]", name))
        for name in bodies[kernel]:
            owners.setdefault((name, source), set()).add(body)
    common = {name for (name, _), known in owners.items() if len(known) > MAX_NAMESAKES}
    return {kernel: names - common for kernel, names in bodies.items()}
