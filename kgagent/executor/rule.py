"""The verdict rule: one function of stored numbers, so that anybody can apply it again.

supported     the interval lies above 1 and the speedup is beyond the noise floor, and no guard is broken
refuted       the candidate is slower beyond the noise floor and the interval lies below 1; or the hypothesis promised a gain over
              this baseline that could have been seen, and the interval leaves out even half of it
inconclusive  anything else that is sound: the effect, if any, is too small for this many pairs
invalid       the run failed, or a gate did; it says nothing of the idea
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kgagent.executor.records import GateResult, Interval, Verdict
from kgagent.graph import plain

HALF = 0.5


def decide(
    outcome: str,
    detail: str,
    gates: Sequence[GateResult],
    guards: Mapping[str, tuple[float, float]],
    interval: Interval | None,
    noise_floor_frac: float,
    expected_gain: float | None,
) -> Verdict:
    """Apply the rule.

    `guards` are metric -> (value, bound), smaller is better; `expected_gain` is a ratio over the baseline, 1.5 meaning half as fast again.
    """
    failed = [gate.name for gate in gates if gate.result == "fail"]
    broken = [name for name, (value, bound) in sorted(guards.items()) if value > bound]
    inputs: dict[str, Any] = {
        "outcome": outcome,
        "failed_gates": failed,
        "broken_guards": broken,
        "noise_floor_frac": noise_floor_frac,
        "expected_gain": expected_gain,
        "interval": plain(interval),
    }
    if outcome != "completed":
        return Verdict("invalid", f"{outcome.replace('_', ' ')}: {detail}", inputs)
    if failed:
        first = next(gate for gate in gates if gate.result == "fail")
        others = f" (and {', '.join(failed[1:])})" if failed[1:] else ""
        return Verdict("invalid", f"gate {first.name} failed: {first.detail}{others}", inputs)
    if interval is None:
        return Verdict("inconclusive", "nothing was timed", inputs)
    word, reason = _measured(interval, noise_floor_frac, expected_gain)
    if word == "supported" and broken:
        return Verdict("inconclusive", f"faster, but worse than its bound in {', '.join(broken)}; {reason}", inputs)
    return Verdict(word, reason, inputs)


def promise_over_baseline(plan: Mapping[str, Any]) -> float | None:
    """What the hypothesis promises over the baseline it meets: gains are stated over the lane's reference, and the frontier has moved since."""
    if not plan["hypothesis"] or plan["hypothesis"]["expected_gain"] is None:
        return None
    return float(plan["hypothesis"]["expected_gain"]) / float(plan["baseline"]["speedup_vs_reference"] if plan["baseline"] else 1.0)


def _measured(interval: Interval, floor: float, expected_gain: float | None) -> tuple[str, str]:
    seen = f"{interval.speedup:.3f}x, 95% interval {interval.low:.3f} to {interval.high:.3f} over {interval.pairs} pairs, noise floor {floor:.1%}"
    if interval.low > 1 and interval.speedup > 1 + floor:
        return "supported", f"faster beyond noise: {seen}"
    if interval.high < 1 and interval.speedup < 1 / (1 + floor):
        return "refuted", f"slower beyond noise: {seen}"
    promised = (expected_gain or 1.0) - 1.0
    if HALF * promised > floor and interval.high < 1 + HALF * promised and interval.speedup < 1 + floor:
        return "refuted", f"promised {expected_gain:.2f}x, and even half of that gain is outside the interval: {seen}"
    return "inconclusive", f"no effect beyond noise was seen: {seen}"
