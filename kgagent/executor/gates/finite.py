"""Outputs are finite wherever the oracle's are: a NaN must never be compared away."""

from __future__ import annotations

from kgagent.executor.gates.interface import Evidence, Gate, failed, passed
from kgagent.executor.records import GateResult
from kgagent.lanes import GateRule

NAME = "finite"


def judge(evidence: Evidence, rule: GateRule) -> GateResult:
    """Fail on the first run with NaN or infinity."""
    del rule
    for point in evidence.observations.points:
        if point.oracle_finite and not point.finite:
            return failed(NAME, f"NaN or infinity in the output at {point.op_point}", op_point=point.op_point, seed=point.seed)
    return passed(NAME, f"all values finite at {len(evidence.observations.points)} runs")


GATE = Gate(NAME, "before", judge)
