"""Every input that changes the reference's output changes the candidate's too."""

from __future__ import annotations

from kgagent.executor.gates.interface import Evidence, Gate, failed, passed
from kgagent.executor.records import GateResult
from kgagent.lanes import GateRule

NAME = "coverage"


def judge(evidence: Evidence, rule: GateRule) -> GateResult:
    """Name the first input that the candidate ignores."""
    del rule
    for seen in evidence.observations.coverage:
        if seen.reference_changed and not seen.candidate_changed:
            return failed(NAME, f"input {seen.argument} has no effect at {seen.op_point}", op_point=seen.op_point, argument=seen.argument)
    return passed(NAME, f"{len(evidence.observations.coverage)} inputs matter as they should")


GATE = Gate(NAME, "before", judge)
