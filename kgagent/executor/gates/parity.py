"""Errors against a float64 oracle stay within a multiple of what the reference itself errs, in maximum and in mean.

The oracle is the lane's reference run in float64; the multiple is `times_floor` in lane.toml.
"""

from __future__ import annotations

import math

from kgagent.executor.gates.interface import Evidence, Gate, failed, passed
from kgagent.executor.records import GateResult
from kgagent.lanes import GateRule

NAME = "parity"
DEFAULT_TIMES_FLOOR = 4.0


def judge(evidence: Evidence, rule: GateRule) -> GateResult:
    """Every seed at every operating point; a NaN error fails."""
    times = rule.number("times_floor", DEFAULT_TIMES_FLOOR)
    worst, told = 0.0, []
    for point in evidence.observations.points:
        for what, error, floor in (("max", point.error_max, point.floor_max), ("mean", point.error_mean, point.floor_mean)):
            told.append({"op_point": point.op_point, "seed": point.seed, "what": what, "error": _json(error), "floor": _json(floor)})
            if not error <= times * floor:  # written so that NaN fails
                text = f"{what} error {error:.3g} at {point.op_point} is more than {times:g} times the reference's own {floor:.3g}"
                return failed(NAME, text, times_floor=times, runs=told)
            worst = max(worst, error / floor if floor else 0.0)
    return passed(NAME, f"errors at most {worst:.2f} times the reference's own over {len(evidence.observations.points)} runs", times_floor=times, runs=told)


def _json(value: float) -> float | str:
    """JSON has no NaN and no infinity."""
    return value if math.isfinite(value) else str(value)


GATE = Gate(NAME, "before", judge)
