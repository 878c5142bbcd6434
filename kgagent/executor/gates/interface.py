"""What every gate is: a name, when it can speak, and a pure function from evidence to a result.

Pure, so that a gate is tested by handing it evidence, and so that the process that collects evidence holds no judgement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kgagent.executor.records import GateResult, Observations, Pair
from kgagent.lanes import GateRule, Lane


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that gates may look at; nothing in here came from the candidate's process but its program."""

    lane: Lane
    platform: str
    observations: Observations
    hlo: str
    parent_hlo: str | None  # None: a reference, which has no parent
    knobs: Mapping[str, Any]
    parent_knobs: Mapping[str, Any]
    files_now: Mapping[str, str]  # SHA-256 of the lane's immutable files after the run
    pairs: tuple[Pair, ...] = ()  # empty before timing
    candidate_ms: float | None = None
    cores: int = 1


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate; `stage` says whether it needs the timing."""

    name: str
    stage: str  # before, after
    judge: Callable[[Evidence, GateRule], GateResult]


def passed(name: str, detail: str, **evidence: Any) -> GateResult:
    return GateResult(name, "pass", detail, evidence)


def failed(name: str, detail: str, **evidence: Any) -> GateResult:
    return GateResult(name, "fail", detail, evidence)


def not_applicable(name: str, detail: str) -> GateResult:
    return GateResult(name, "not_applicable", detail, {})
