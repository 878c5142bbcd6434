"""Rows of a gap as candidate hypotheses: which side pays, what it would save, and the lines and levers each rests on."""

from __future__ import annotations

import pytest

from kgagent.evidence.attribution import Origin
from kgagent.evidence.candidates import candidates, statement
from kgagent.evidence.frames import Frame
from kgagent.evidence.gap import by_class, by_line, gap
from kgagent.evidence.hlo import Module
from kgagent.evidence.kept_hlo import diff_of
from kgagent.evidence.lines import line_node
from kgagent.evidence.recorded import by_concept
from kgagent.evidence.weigh import Weighed, WeightedOp, weigh_module
from kgagent.graph import Graph, NewEdge, NewNode
from tests.evidence import programs
from tests.evidence.conftest import compiled
from tests.evidence.test_views import keep_compile

SCORES = "f32[8,2048,2048]"


def weighed(*ops: tuple[str, str, float, str]) -> Weighed:
    """(name, class, microseconds, path:line)."""
    made = []
    for name, kind, us, place in ops:
        path, _, line = place.rpartition(":")
        origins = (Origin((Frame(path, int(line), "f"),), 1.0),) if place else ()
        made.append(WeightedOp(name, "m", kind, "f32[8]", "", us, origins))
    return Weighed("us", False, tuple(made), "")


SLOW = weighed(("fusion.1", "elementwise", 60.0, "/src/model/norm.py:7"), ("dot.1", "matmul", 40.0, "/src/model/mlp.py:3"))
FAST = weighed(("fusion.9", "elementwise", 20.0, "/src/other/norm.py:9"), ("dot.2", "matmul", 40.0, "/src/other/mlp.py:4"))


@pytest.mark.parametrize("a, b, pays, other", [(SLOW, FAST, "A", "B"), (FAST, SLOW, "B", "A")])
def test_the_side_that_pays_more_is_the_one_to_change(a: Weighed, b: Weighed, pays: str, other: str) -> None:
    found = gap(a, b, by_class)
    says = [statement(found, row) for row in found.rows]
    assert says[0] == f"{other} spends less on elementwise (at model/norm.py:7): doing it in {pays} as {other} does saves up to 40 us (40.0% of {pays})."
    assert says[1] == "", "a row without a difference is nothing to test"


def test_what_only_one_side_does(graph: Graph) -> None:
    found = gap(SLOW, FAST, by_line, "line")
    says = statement(found, found.rows[0], "old", "new")
    assert says == "new does without line model/norm.py:7: doing without it in old too saves up to 60 us (60.0% of old)."
    nowhere = gap(weighed(("x", "copy", 5.0, "")), weighed(("x", "copy", 1.0, "")), by_line, "line")
    assert "what has no line" in statement(nowhere, nowhere.rows[0])
    assert gap(SLOW, SLOW, by_class).rows[0].a_lines == ("/src/model/norm.py:7",)


def test_a_candidate_carries_the_concepts_of_its_lines_and_their_levers(graph: Graph) -> None:
    with graph.transaction():
        graph.put_nodes(
            [
                line_node(Frame("/src/model/norm.py", 7)),
                NewNode("sym:m.norm", "symbol", "norm", "test"), NewNode("concept:fusion", "concept", "fusion", "test"),
                NewNode("lever:lane/fuse", "lever", "fuse", "test"), NewNode("lever:other", "lever", "other", "test"),
            ]
        )  # fmt: skip
        graph.put_edges(
            [
                NewEdge("line:/src/model/norm.py#L7", "within", "sym:m.norm", "test"),
                NewEdge("sym:m.norm", "mentions", "concept:fusion", "test", how="detector"),
                NewEdge("lever:lane/fuse", "tests_concept", "concept:fusion", "test"), NewEdge("concept:fusion", "enables", "lever:other", "test"),
            ]
        )  # fmt: skip
    found = gap(SLOW, FAST, by_class)
    first, second = candidates(graph, found)
    assert (first.concepts, set(first.levers), first.difference) == (("concept:fusion",), {"lever:lane/fuse", "lever:other"}, -40.0)
    assert first.row.a_ops == ("fusion.1",) and (second.statement, second.concepts) == ("", ())
    concept = gap(SLOW, FAST, by_concept(graph), "concept")
    assert "does without fusion code" in candidates(graph, concept)[0].statement
    assert sum(c.difference for c in candidates(graph, concept)) == pytest.approx(FAST.total - SLOW.total)


def test_the_score_matrices_that_vanish_are_named_in_either_order(graph: Graph, einsum: Module, splash: Module) -> None:
    keep_compile(graph, "compile:einsum", compiled(programs.einsum_export()).hlo_text)
    keep_compile(graph, "compile:splash", compiled(programs.splash_export()).hlo_text)
    there, back = diff_of(graph, "compile:einsum", "compile:splash"), diff_of(graph, "compile:splash", "compile:einsum")
    assert there is not None and back is not None
    for only_einsum, only_splash in ((there.buffers_went, there.buffers_came), (back.buffers_came, back.buffers_went)):
        scores = [buffer for buffer in only_einsum if buffer.shape == SCORES]
        assert scores and all("programs.py:" in buffer.line for buffer in scores)
        assert not [buffer for buffer in only_splash if buffer.shape == SCORES]
    rows = candidates(graph, gap(weigh_module(einsum), weigh_module(splash), by_line, "line"), a="impl=einsum", b="impl=splash")
    assert "impl=splash does without line evidence/programs.py:" in rows[0].statement and "MiB written" in rows[0].statement


def test_two_models_with_nothing_in_common(graph: Graph, einsum: Module, train_steps: dict[tuple[bool, bool], Module]) -> None:
    found = gap(weigh_module(train_steps[True, True]), weigh_module(einsum), by_line, "line")
    rows = candidates(graph, found, a="train step", b="attention")
    assert sum(row.difference for row in rows) == pytest.approx(found.b_total - found.a_total)
    assert all(row.statement.startswith(("attention", "train step")) for row in rows[:3])
