"""What was computed while the clock ran agrees with the baseline's answer on the same inputs."""

from __future__ import annotations

from kgagent.executor.gates.interface import Evidence, Gate, failed, not_applicable, passed
from kgagent.executor.gates.parity import DEFAULT_TIMES_FLOOR
from kgagent.executor.records import GateResult
from kgagent.lanes import GateRule

NAME = "timed_output"


def judge(evidence: Evidence, rule: GateRule) -> GateResult:
    """Two programs that both pass parity differ by at most both their allowances."""
    del rule
    if not evidence.pairs:
        return not_applicable(NAME, "nothing was timed")
    timed = evidence.lane.points(evidence.platform, "timed")[0].name
    parity = evidence.lane.gate("parity")
    times = parity.number("times_floor", DEFAULT_TIMES_FLOOR) if parity else DEFAULT_TIMES_FLOOR
    allowed = 2 * times * max((p.floor_max for p in evidence.observations.points if p.op_point == timed), default=0.0)
    worst = max(pair.output_difference for pair in evidence.pairs)
    if not worst <= allowed:
        return failed(NAME, f"timed outputs differ from the baseline's by {worst:.3g}, allowed {allowed:.3g}", allowed=allowed)
    return passed(NAME, f"timed outputs within {worst:.3g} of the baseline's", allowed=allowed, worst=worst)


GATE = Gate(NAME, "after", judge)
