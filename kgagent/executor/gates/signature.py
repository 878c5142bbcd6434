"""Inputs taken and outputs given have exactly the reference's structure, shapes and dtypes."""

from __future__ import annotations

from kgagent.executor.gates.interface import Evidence, Gate, failed, passed
from kgagent.executor.records import GateResult
from kgagent.lanes import GateRule

NAME = "signature"


def judge(evidence: Evidence, rule: GateRule) -> GateResult:
    """The first difference is named with its operating point."""
    del rule
    for point in evidence.observations.points:
        for what, got, expected in (("takes", point.inputs, point.expected_inputs), ("returns", point.outputs, point.expected_outputs)):
            if got != expected:
                text = f"{what} {', '.join(got) or 'nothing'} where the reference {what} {', '.join(expected)}, at {point.op_point}"
                return failed(NAME, text, op_point=point.op_point, got=list(got), expected=list(expected))
    return passed(NAME, f"types, shapes and dtypes equal at {len(evidence.observations.points)} runs")


GATE = Gate(NAME, "before", judge)
