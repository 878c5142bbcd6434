"""Frozen records of a lane; everything a candidate is judged by is in here, so a lane can be hashed and compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class OpPoint:
    """One set of shapes and dtypes; `timed` ones carry the metric, `parity` ones only the semantics."""

    name: str
    role: str  # timed, parity
    platforms: tuple[str, ...]
    fields: tuple[tuple[str, Scalar], ...]

    def mapping(self) -> dict[str, Scalar]:
        """What `inputs(seed, op_point)` gets."""
        return dict(self.fields)


@dataclass(frozen=True, slots=True)
class Knob:
    """One thing a candidate may choose; it exists only where `when` holds."""

    name: str
    default: Scalar
    choices: tuple[Scalar, ...]
    doc: str
    when: tuple[tuple[str, tuple[Scalar, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class HloExpectation:
    """Patterns of optimized HLO by which a lever shows that it acted on a platform."""

    platform: str
    expect: tuple[str, ...]
    forbid: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LaneLever:
    """A knob's value (or "*") as a falsifiable idea: what should happen, why, and what would show it wrong."""

    knob: str
    value: Scalar
    statement: str
    mechanism: str
    predicted_signal: str
    falsification: str
    concepts: tuple[str, ...]
    symbols: tuple[str, ...]
    prior: float
    expected_gain: float  # as a ratio: 1.5 is half as fast again
    hlo: tuple[HloExpectation, ...] = ()

    def slug(self) -> str:
        """`impl=splash`, `block_q`: how the lever's node is named within its lane."""
        return self.knob if self.value == "*" else f"{self.knob}={spell(self.value)}"


@dataclass(frozen=True, slots=True)
class GateRule:
    """A gate this lane asks for, with its settings."""

    name: str
    mandatory: bool
    settings: tuple[tuple[str, Scalar], ...]

    def number(self, name: str, default: float) -> float:
        value = dict(self.settings).get(name, default)
        return float(value) if isinstance(value, (int, float)) else default


@dataclass(frozen=True, slots=True)
class Budgets:
    """Limits that kill, and how much is measured."""

    trace_s: float = 60.0
    run_s: float = 90.0
    memory_mb: int = 6000
    output_kb: int = 256
    pairs: int = 3
    samples_per_pair: int = 8
    aa_pairs: int = 3
    experiment_minutes: float = 1.0


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane as loaded: `files` holds the bytes that were hashed, so that nothing read later can differ."""

    name: str
    kind: str  # kernel, model, repository
    metric: str
    unit: str
    direction: str  # min, max
    refutation_reach: int
    doc: str
    folder: Path
    chip: str
    topology: str
    problem: str
    harness: str
    op_points: tuple[OpPoint, ...]
    gates: tuple[GateRule, ...]
    budgets: Budgets
    guards: tuple[tuple[str, float], ...]
    knobs: tuple[Knob, ...]
    levers: tuple[LaneLever, ...]
    mutable: tuple[str, ...]
    immutable: tuple[str, ...]
    digest: str  # of lane.toml and the immutable files
    files: dict[str, bytes] = field(repr=False, compare=False)

    @property
    def id(self) -> str:
        return f"lane:{self.name}"

    def points(self, platform: str, role: str | None = None) -> tuple[OpPoint, ...]:
        """Operating points of a platform, timed ones first."""
        found = [p for p in self.op_points if platform in p.platforms and role in (None, p.role)]
        return tuple(sorted(found, key=lambda p: p.role != "timed"))

    def gate(self, name: str) -> GateRule | None:
        return next((gate for gate in self.gates if gate.name == name), None)


def spell(value: Scalar) -> str:
    """A knob value as people type it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
