"""Each row of a gap as a candidate hypothesis: one sentence that a run can refute, with the operations, lines and levers it rests on.

They are readings of two runs, not claims: nothing is written to the research tables before somebody tests one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgagent.evidence.digest import levers_of
from kgagent.evidence.gap import NO_CONCEPT, UNKNOWN, Gap, GapRow
from kgagent.evidence.recorded import Concepts
from kgagent.graph.store import Graph

_SMALLEST_FRAC = 0.001  # of the larger total; below it a row is listed, but nobody would test it
_CONCEPTS_KEPT = 3


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one would test because of a row; `statement` is "" where the row is too small to be worth a run."""

    row: GapRow
    difference: float  # b - a
    statement: str
    concepts: tuple[str, ...]
    levers: tuple[str, ...]  # those that the concepts' pages or lanes tie to them


def candidates(graph: Graph, gap: Gap, *, a: str = "A", b: str = "B") -> tuple[Candidate, ...]:
    """One a row, in the gap's order; `a` and `b` are what to call the two runs."""
    concepts = Concepts(graph)
    levers: dict[str, tuple[str, ...]] = {}
    out = []
    for row in gap.rows:
        found = _concepts(concepts, row)
        for concept in found:
            if concept not in levers:
                levers[concept] = tuple(lever.lever for lever in levers_of(graph, (concept,)))
        named = tuple(dict.fromkeys(lever for concept in found for lever in levers[concept]))
        out.append(Candidate(row, row.difference, statement(gap, row, a, b), found, named))
    return tuple(out)


def statement(gap: Gap, row: GapRow, a: str = "A", b: str = "B") -> str:
    """`Doing in A what B does for fusion saves up to 12.3 us (34.5% of A)`: from the side that pays more to the one that pays less."""
    if abs(row.difference) <= _SMALLEST_FRAC * max(gap.a_total, gap.b_total, 1e-12):
        return ""
    pays, other = (b, a) if row.difference > 0 else (a, b)
    total = gap.b_total if row.difference > 0 else gap.a_total
    least = min(row.a, row.b)
    lines = row.b_lines if row.difference > 0 else row.a_lines
    work = f"{_what(gap.by, row.key)}{f' (at {_places(lines)})' if lines and gap.by != 'line' else ''}"
    saved = f"up to {amount(abs(row.difference), gap.unit)} ({100 * abs(row.difference) / total:.1f}% of {pays})"
    if least == 0:
        return f"{other} does without {work}: doing without it in {pays} too saves {saved}."
    return f"{other} spends less on {work}: doing it in {pays} as {other} does saves {saved}."


def amount(value: float, unit: str) -> str:
    """A weight with its unit, bytes as MiB."""
    return f"{value / 2**20:,.2f} MiB written" if unit == "bytes" else f"{value:,.4g} {unit}"


def _what(by: str, key: str) -> str:
    if key == UNKNOWN:
        return "what has no line"
    if key == NO_CONCEPT:
        return "what no concept speaks of"
    if by == "class" and key == "free":
        return "broadcasts and other operations without arithmetic"
    return {"line": f"line {short_place(key)}", "concept": f"{key.removeprefix('concept:')} code"}.get(by, key)


def short_place(place: str) -> str:
    """The last two parts of a path, with the line."""
    return "/".join(place.split("/")[-2:])


def _places(lines: Sequence[str]) -> str:
    return ", ".join(short_place(line) for line in lines[:2]) + (f" and {len(lines) - 2} more" if len(lines) > 2 else "")


def _concepts(concepts: Concepts, row: GapRow) -> tuple[str, ...]:
    """The row's own concept first, then those of its lines on the side that pays more."""
    found: dict[str, None] = {row.key: None} if row.key.startswith("concept:") else {}
    for place in (*(row.b_lines if row.difference > 0 else row.a_lines), *(row.a_lines if row.difference > 0 else row.b_lines)):
        path, _, number = place.rpartition(":")
        found.update(dict.fromkeys(concepts.of_line(f"line:{path}#L{number}")[1]))
    return tuple(found)[:_CONCEPTS_KEPT]
