"""What a plan is made of: every score can be taken apart into terms that name where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tried:
    """A concluded experiment as evidence for others; `ratio` is its speed over today's frontier (None: not measured)."""

    experiment: str
    lever: str
    knobs: Mapping[str, object]
    concepts: frozenset[str]
    scope: str
    device_class: str  # cpu, tpu …: CPU numbers never move TPU beliefs
    verdict: str
    ratio: float | None
    minutes: float | None


@dataclass(frozen=True, slots=True)
class Idea:
    """An open hypothesis as the scorer sees it; `gain_vs_reference` is the speedup its lever promises."""

    hypothesis: str
    lever: str
    knobs: Mapping[str, object]
    concepts: frozenset[str]
    scope: str
    device_class: str
    prior: float
    gain_vs_reference: float
    statement: str


@dataclass(frozen=True, slots=True)
class Term:
    """One reason for a part of a score."""

    label: str
    value: float
    weight: float
    source: str  # node id, or the file the number stands in


@dataclass(frozen=True, slots=True)
class Part:
    """One factor of the score with the terms it came from; `unknown` says what would sharpen it."""

    value: float
    unit: str
    terms: tuple[Term, ...]
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A hypothesis with its score, best first in a plan."""

    hypothesis: str
    statement: str
    lever: str
    knobs: Mapping[str, object]
    score: float
    p_supported: Part
    expected_gain: Part
    cost: Part


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which levers of the lane were tried at this scope, which not."""

    tried: tuple[str, ...]
    untried: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A lane's open hypotheses, ranked, with what the ranking doesn't know."""

    lane: str
    scope: str
    frontier: str | None
    frontier_speedup: float
    ranked: tuple[Ranked, ...]
    coverage: Coverage
    plateau: str  # "" or why the last results look like one
    unknown: tuple[str, ...]
