"""The verdict rule and the statistics under it."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgagent.executor.records import GateResult, Interval, Pair, Quad
from kgagent.executor.rule import decide
from kgagent.executor.stats import interval, median_ms, noise_floor_frac, pair_ratio, sample_count

PASS, FAIL = GateResult("parity", "pass", "fine", {}), GateResult("parity", "fail", "wrong by a lot", {})


@pytest.mark.parametrize(
    ("outcome", "gate", "guards", "numbers", "floor", "expected_gain", "verdict"),
    [
        ("completed", PASS, {}, (1.5, 1.4, 1.6), 0.03, None, "supported"),
        ("completed", PASS, {}, (1.02, 1.01, 1.03), 0.03, None, "inconclusive"),  # inside the noise floor
        ("completed", PASS, {}, (1.5, 0.9, 2.0), 0.03, None, "inconclusive"),  # the interval holds 1
        ("completed", PASS, {}, (0.5, 0.4, 0.6), 0.03, None, "refuted"),
        ("completed", PASS, {}, (0.98, 0.97, 0.99), 0.03, None, "inconclusive"),
        ("completed", PASS, {}, (1.0, 0.99, 1.01), 0.03, None, "inconclusive"),  # identical programs decide nothing
        ("completed", PASS, {}, (1.0, 0.99, 1.01), 0.03, 1.5, "refuted"),  # half of what was promised is excluded
        ("completed", PASS, {}, (1.0, 0.7, 1.4), 0.03, 1.5, "inconclusive"),
        ("completed", PASS, {}, (1.0, 0.99, 1.01), 0.03, 1.04, "inconclusive"),  # the promise could not have been seen
        ("completed", PASS, {"temp_mb": (9.0, 8.0)}, (1.5, 1.4, 1.6), 0.03, None, "inconclusive"),
        ("completed", PASS, {"temp_mb": (8.0, 8.0)}, (1.5, 1.4, 1.6), 0.03, None, "supported"),
        ("completed", FAIL, {}, (1.5, 1.4, 1.6), 0.03, None, "invalid"),
        ("timeout", PASS, {}, None, 0.0, None, "invalid"),
        ("completed", PASS, {}, None, 0.0, None, "inconclusive"),
    ],
)
def test_rule(
    outcome: str,
    gate: GateResult,
    guards: dict[str, tuple[float, float]],
    numbers: tuple[float, float, float] | None,
    floor: float,
    expected_gain: float | None,
    verdict: str,
) -> None:
    seen = Interval(*numbers, pairs=3) if numbers else None
    decided = decide(outcome, "passed its 4 s", [gate], guards, seen, floor, expected_gain)
    assert decided.verdict == verdict
    assert decided.reason and "\n" not in decided.reason
    assert decided.inputs["noise_floor_frac"] == floor and decided.inputs["outcome"] == outcome


def pairs_of(speedup: float, noise: float, count: int, seed: int) -> list[Pair]:
    """Pairs whose processes differ among each other, as they do on a real machine."""
    chance = random.Random(seed)
    pairs = []
    for index in range(count):
        shift = math.exp(chance.gauss(0, noise))
        quads = tuple(
            Quad((1e6 / speedup, 1e6 / speedup * math.exp(chance.gauss(0, noise))), (1e6 * shift, 1e6 * shift * math.exp(chance.gauss(0, noise))))
            for _ in range(8)
        )
        pairs.append(Pair("candidate" if index % 2 == 0 else "baseline", index, 1, quads, 0.0, 0.0))
    return pairs


@settings(max_examples=25, deadline=None)
@given(st.floats(0.2, 5.0), st.floats(0.0, 0.2), st.integers(1, 5), st.integers(0, 10**6))
def test_interval_holds_its_centre_and_repeats(speedup: float, noise: float, count: int, seed: int) -> None:
    pairs = pairs_of(speedup, noise, count, seed)
    seen = interval(pairs)
    assert seen.low <= seen.speedup <= seen.high
    assert seen.pairs == count
    assert seen == interval(pairs)
    low, high = min(map(pair_ratio, pairs)), max(map(pair_ratio, pairs))
    assert low <= seen.speedup <= high


def twice(quad: Quad) -> Quad:
    return Quad((2 * quad.candidate_ns[0], 2 * quad.candidate_ns[1]), (2 * quad.baseline_ns[0], 2 * quad.baseline_ns[1]))


def test_scaling_both_programs_changes_nothing() -> None:
    pairs = pairs_of(1.3, 0.05, 3, 7)
    slower = [dataclasses.replace(pair, quads=tuple(twice(quad) for quad in pair.quads)) for pair in pairs]
    assert interval(slower).speedup == pytest.approx(interval(pairs).speedup)
    assert median_ms(slower, "candidate") == pytest.approx(2 * median_ms(pairs, "candidate"))
    assert sample_count(pairs) == 48


def test_a_linear_drift_within_a_quad_cancels() -> None:
    assert Quad((1.0, 4.0), (2.0, 3.0)).ratio == 1.0


def test_identical_programs_are_rarely_decided_and_real_changes_are_seen() -> None:
    """A/A pairs under noise, judged by a floor measured from other A/A pairs."""
    floors = [noise_floor_frac(pairs_of(1.0, 0.03, 3, seed)) for seed in range(40)]
    false = 0
    for seed, floor in enumerate(floors):
        seen = interval(pairs_of(1.0, 0.03, 3, 1000 + seed))
        false += decide("completed", "", [], {}, seen, floor, None).verdict != "inconclusive"
        assert decide("completed", "", [], {}, interval(pairs_of(1.6, 0.03, 3, seed)), floor, None).verdict == "supported"
    assert false == 0


def test_the_floor_is_never_under_one_percent() -> None:
    assert noise_floor_frac(pairs_of(1.0, 0.0, 3, 1)) == 0.01
    assert noise_floor_frac(pairs_of(1.1, 0.0, 1, 1)) == pytest.approx(1.1**2 - 1)
