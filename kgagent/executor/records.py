"""Frozen records of the executor: what a worker observed, what gates said of it, and what came out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Progress = Callable[[str], None]  # one line of narration


@dataclass(frozen=True, slots=True)
class PointObservation:
    """One program run on one hidden seed at one operating point, beside the float64 oracle."""

    op_point: str
    seed: int
    inputs: tuple[str, ...]  # type, shape and dtype of each
    expected_inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    expected_outputs: tuple[str, ...]
    finite: bool
    oracle_finite: bool
    error_max: float  # of the candidate against the oracle
    error_mean: float
    floor_max: float  # of the reference, in its own precision, against the oracle
    floor_mean: float
    inputs_before: str  # SHA-256
    inputs_after: str
    output_hashes: tuple[str, ...]  # the same call, repeated


@dataclass(frozen=True, slots=True)
class CoverageObservation:
    """Whether redrawing one input changes the output."""

    op_point: str
    argument: int
    reference_changed: bool
    candidate_changed: bool


@dataclass(frozen=True, slots=True)
class Observations:
    """All that the trusted worker saw of a program before it was timed."""

    points: tuple[PointObservation, ...]
    coverage: tuple[CoverageObservation, ...]
    custom_calls: tuple[str, ...]
    effects: tuple[str, ...]
    compile_s: float
    temp_bytes: int
    argument_bytes: int
    output_bytes: int
    min_flops: float
    jax: str


@dataclass(frozen=True, slots=True)
class Quad:
    """Four timed samples in the order candidate, baseline, baseline, candidate (or mirrored); ns per call."""

    candidate_ns: tuple[float, float]
    baseline_ns: tuple[float, float]

    @property
    def ratio(self) -> float:
        """Above 1 the candidate is faster; a drift that is linear over the quad cancels."""
        return sum(self.baseline_ns) / sum(self.candidate_ns)


@dataclass(frozen=True, slots=True)
class Pair:
    """A fresh process that timed both programs interleaved."""

    first: str  # candidate, baseline
    seed: int
    batch: int  # calls per sample
    quads: tuple[Quad, ...]
    output_difference: float  # largest between the two programs' timed outputs; NaN as infinity
    load_1min: float


@dataclass(frozen=True, slots=True)
class Interval:
    """A speedup with its 95% interval, clustered by process pair."""

    speedup: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True, slots=True)
class GateResult:
    """One gate's word with what it rests on."""

    name: str
    result: str  # pass, fail, not_applicable
    detail: str
    evidence: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rule said, and the numbers it was given."""

    verdict: str  # supported, refuted, inconclusive, invalid
    reason: str
    inputs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExperimentReport:
    """An experiment as filed."""

    experiment: str
    lane: str
    role: str
    hypothesis: str | None
    configuration: str
    knobs: dict[str, Any]
    baseline: str | None
    outcome: str
    detail: str
    verdict: str | None  # None: the reference, which is judged by nobody
    reason: str
    speedup: float | None
    ci_low: float | None
    ci_high: float | None
    noise_floor_frac: float | None
    speedup_vs_reference: float | None
    candidate_ms: float | None
    device: str
    gates: tuple[GateResult, ...]
    branch: str
    commit_sha: str
    receipts: str  # folder


@dataclass(frozen=True, slots=True)
class OpChange:
    """An instruction that one program has and the other has not."""

    name: str
    op_class: str
    shape: str
    output_bytes: int
    line: str  # path:line, "" where unknown


@dataclass(frozen=True, slots=True)
class Preflight:
    """What the TPU compiler says of a candidate and of the reference; nothing was run."""

    lane: str
    topology: str
    configuration: str
    knobs: dict[str, Any]
    flags: dict[str, str]
    profile: str  # node of the candidate's compile
    reference_profile: str
    status: str  # ok, blocked
    error: str  # one line, "" when ok
    error_line: str  # path:line of the source it is about
    hint: str
    memory: dict[str, int | None]  # argument, output, temp, peak … bytes
    reference_memory: dict[str, int | None]
    compile_s: float
    kernels: tuple[str, ...]
    mechanism: GateResult | None
    went: tuple[OpChange, ...]  # of the reference's instructions, largest first
    came: tuple[OpChange, ...]
    label: str = "predicted"


@dataclass(frozen=True, slots=True)
class FrontierRow:
    """The best verified experiment of a lane at this machine's scope."""

    experiment: str
    configuration: str
    scope: str
    knobs: dict[str, Any]
    speedup_vs_reference: float
    branch: str
    commit_sha: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that verify found wrong, with the file or row it is about."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was checked; `problems` is empty where every byte and sum is as it was filed."""

    runs: int
    receipts: int
    artefacts: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems
