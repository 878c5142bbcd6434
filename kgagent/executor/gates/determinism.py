"""The same inputs give the same bytes every time."""

from __future__ import annotations

from kgagent.executor.gates.interface import Evidence, Gate, failed, passed
from kgagent.executor.records import GateResult
from kgagent.lanes import GateRule

NAME = "determinism"


def judge(evidence: Evidence, rule: GateRule) -> GateResult:
    """Compare the hashes of repeated outputs."""
    del rule
    for point in evidence.observations.points:
        if len(set(point.output_hashes)) != 1:
            return failed(NAME, f"two runs on the same inputs differ at {point.op_point}", op_point=point.op_point, outputs=list(point.output_hashes))
    return passed(NAME, f"outputs repeat byte for byte at {len(evidence.observations.points)} runs")


GATE = Gate(NAME, "before", judge)
