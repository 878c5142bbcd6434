"""What a hypothesis promises is held against the baseline it meets, not against the reference it was stated over."""

from __future__ import annotations

from typing import Any

import pytest

from kgagent.executor.records import Interval
from kgagent.executor.rule import decide, promise_over_baseline

PROMISES = [
    ({"hypothesis": {"expected_gain": 1.5}, "baseline": {"speedup_vs_reference": 1.0}}, 1.5),
    ({"hypothesis": {"expected_gain": 1.5}, "baseline": {"speedup_vs_reference": 3.0}}, 0.5),
    ({"hypothesis": {"expected_gain": None}, "baseline": {"speedup_vs_reference": 3.0}}, None),
    ({"hypothesis": None, "baseline": None}, None),
]


@pytest.mark.parametrize(("plan", "expected"), PROMISES)
def test_promises_are_rescaled(plan: dict[str, Any], expected: float | None) -> None:
    assert promise_over_baseline(plan) == expected


def test_a_faster_frontier_does_not_refute_what_was_promised_over_the_reference() -> None:
    same = Interval(1.0, 0.97, 1.03, 3)
    assert decide("completed", "", (), {}, same, 0.05, 1.5).verdict == "refuted"
    assert decide("completed", "", (), {}, same, 0.05, 0.5).verdict == "inconclusive"
