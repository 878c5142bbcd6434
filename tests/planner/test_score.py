"""The score: its parts, their terms, and the properties a colleague would insist on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgagent.planner.records import Idea, Tried
from kgagent.planner.score import configuration_similarity, cost, gain, probability, proximity, rank

IDEA = Idea("hyp:a", "impl=chunked", {"impl": "chunked", "block": 128}, frozenset({"concept:online-softmax"}), "scope:s", "cpu", 0.5, 2.0, "s")
TRIED = Tried("exp:a", "impl=chunked", {"impl": "chunked", "block": 256}, frozenset({"concept:online-softmax"}), "scope:s", "cpu", "supported", 1.2, 0.3)

DIRECTIONS = [
    ("a faster neighbour raises P", TRIED, 1),
    ("a slower neighbour lowers P", replace(TRIED, verdict="refuted", ratio=0.5, lever="other"), -1),
    ("an unsound neighbour says nothing", replace(TRIED, verdict="invalid"), 0),
    ("a CPU neighbour says nothing of a TPU", replace(TRIED, device_class="tpu"), 0),
    ("one that beat an old frontier but not today's lowers P", replace(TRIED, verdict="supported", ratio=0.6), -1),
]


@pytest.mark.parametrize(("tried", "direction"), [(t, d) for _, t, d in DIRECTIONS], ids=[n for n, _, _ in DIRECTIONS])
def test_neighbours_move_probability(tried: Tried, direction: int) -> None:
    moved = probability(IDEA, [tried]).value - probability(IDEA, []).value
    assert (moved > 0) - (moved < 0) == direction


def test_closer_neighbours_weigh_more() -> None:
    other_scope = replace(TRIED, scope="scope:other")
    other_lever = replace(TRIED, lever="impl=splash", knobs={"impl": "splash"}, concepts=frozenset({"concept:x"}))
    assert proximity(IDEA, TRIED) > proximity(IDEA, other_scope) > 0
    assert proximity(IDEA, TRIED) > proximity(IDEA, other_lever)


SIMILAR = [
    ({"a": 1}, {"a": 1}, 1.0),
    ({"a": 128}, {"a": 256}, 0.6),
    ({"a": 128}, {"a": 512}, 0.4),
    ({"a": "x"}, {"a": "y"}, 0.0),
    ({"a": True}, {"a": False}, 0.0),
    ({}, {}, 1.0),
]


@pytest.mark.parametrize(("a", "b", "expected"), SIMILAR)
def test_configuration_similarity(a: dict[str, object], b: dict[str, object], expected: float) -> None:
    assert configuration_similarity(a, b) == pytest.approx(expected)
    assert configuration_similarity(b, a) == pytest.approx(expected)


tried_strategy = st.builds(
    Tried,
    experiment=st.text("ab", min_size=1),
    lever=st.sampled_from(["impl=chunked", "impl=splash"]),
    knobs=st.dictionaries(st.sampled_from(["impl", "block"]), st.sampled_from(["chunked", 128, 256])),
    concepts=st.frozensets(st.sampled_from(["concept:online-softmax", "concept:x"])),
    scope=st.sampled_from(["scope:s", "scope:t"]),
    device_class=st.sampled_from(["cpu", "tpu"]),
    verdict=st.sampled_from(["supported", "refuted", "inconclusive", "invalid"]),
    ratio=st.none() | st.floats(0.01, 100),
    minutes=st.none() | st.floats(0.01, 60),
)


@given(history=st.lists(tried_strategy, max_size=12), prior=st.floats(0.01, 0.99), promise=st.floats(0.1, 50), frontier=st.floats(1, 50))
def test_every_part_is_sound(history: list[Tried], prior: float, promise: float, frontier: float) -> None:
    idea = replace(IDEA, prior=prior, gain_vs_reference=promise)
    ranked = rank([idea], history, frontier_speedup=frontier, default_minutes=1.0)[0]
    assert 0 < ranked.p_supported.value < 1
    assert ranked.expected_gain.value > 0
    assert ranked.cost.value > 0
    assert ranked.score == pytest.approx(ranked.p_supported.value * ranked.expected_gain.value / ranked.cost.value)


@given(history=st.lists(tried_strategy, max_size=8))
def test_ranking_ignores_the_order_of_ideas(history: list[Tried]) -> None:
    ideas = [IDEA, replace(IDEA, hypothesis="hyp:b", knobs={"impl": "splash"}, lever="impl=splash"), replace(IDEA, hypothesis="hyp:c", prior=0.2)]
    forward = rank(ideas, history, frontier_speedup=1.0, default_minutes=1.0)
    backward = rank(ideas[::-1], history[::-1], frontier_speedup=1.0, default_minutes=1.0)
    assert [r.hypothesis for r in forward] == [r.hypothesis for r in backward]


def test_what_is_unknown_is_said() -> None:
    assert "prior alone" in probability(IDEA, []).unknown
    assert "budget" in cost(IDEA, [], 2.0).unknown
    assert cost(IDEA, [TRIED], 2.0).value == pytest.approx(0.3)
    assert gain(IDEA, [], 1.0).terms[0].source == "impl=chunked"
