"""The arrays a program was given hold the same bytes afterwards."""

from __future__ import annotations

from kgagent.executor.gates.interface import Evidence, Gate, failed, passed
from kgagent.executor.records import GateResult
from kgagent.lanes import GateRule

NAME = "inputs_unchanged"


def judge(evidence: Evidence, rule: GateRule) -> GateResult:
    """Compare hashes of the inputs before and after each run."""
    del rule
    for point in evidence.observations.points:
        if point.inputs_before != point.inputs_after:
            return failed(NAME, f"inputs were written to at {point.op_point}", op_point=point.op_point, before=point.inputs_before, after=point.inputs_after)
    return passed(NAME, f"input bytes equal before and after {len(evidence.observations.points)} runs")


GATE = Gate(NAME, "before", judge)
