"""Faster than the machine can compute the least work the answer takes is a bug, not a win."""

from __future__ import annotations

from kgagent.executor.gates.interface import Evidence, Gate, failed, not_applicable, passed
from kgagent.executor.records import GateResult
from kgagent.lanes import GateRule

NAME = "roofline"
DEFAULT_GFLOPS_PER_CORE = 600.0  # above what one core of today's CPUs does in float32, matrix units included


def judge(evidence: Evidence, rule: GateRule) -> GateResult:
    """`min_flops(op_point)` in inputs.py over the measured time, against `gflops_per_core` times the cores."""
    flops = evidence.observations.min_flops
    if evidence.candidate_ms is None or not flops:
        return not_applicable(NAME, "nothing was timed, or the lane states no least work")
    reached = flops / (evidence.candidate_ms * 1e-3) / 1e9
    limit = rule.number("gflops_per_core", DEFAULT_GFLOPS_PER_CORE) * evidence.cores
    if reached > limit:
        return failed(NAME, f"{reached:.0f} GFLOP/s is more than this machine can do ({limit:.0f})", gflops=reached, limit_gflops=limit)
    return passed(NAME, f"{reached:.0f} GFLOP/s of at most {limit:.0f}", gflops=reached, limit_gflops=limit)


GATE = Gate(NAME, "after", judge)
