"""Flame graphs beside the pages of profiles: drawn once, redrawn when the profile changes, left alone once somebody edited them."""

from __future__ import annotations

import xml.dom.minidom
from pathlib import Path

import pytest

from kgagent.evidence.add import add_profile
from kgagent.evidence.flame import flame_of
from kgagent.graph import Graph
from kgagent.wiki import WikiReport, render

PAGE, DRAWING = "profiles/profile-matmul.md", "profiles/profile-matmul.svg"


@pytest.fixture
def drawn(graph: Graph, shared: Path) -> Graph:
    add_profile(graph, shared / "evidence/v6e_matmul/logdir", run="matmul")
    report = mirror(graph)
    assert {PAGE, DRAWING} <= set(report.written)
    return graph


def mirror(graph: Graph) -> WikiReport:
    return render(graph, draw=flame_of)


def text(graph: Graph, name: str) -> str:
    return (graph.workspace.wiki / name).read_text()


def test_a_profiles_page_shows_its_flame_graph_and_what_it_leaves_unattributed(drawn: Graph) -> None:
    page, svg = text(drawn, PAGE), text(drawn, DRAWING)
    assert "![flame graph](profile-matmul.svg)" in page and "100.0% of us has a line; 0.0% unattributed" in page
    assert "| TPU v6 Lite | 3 | 227.278 us | 227.262 us |" in page and "`llo_test/pallas_matmul.py:48`" in page
    xml.dom.minidom.parseString(svg)
    assert "227.3 us; 100.0% of us has a line; 0.0% unattributed" in svg
    assert "/tmp/" not in svg, "paths are cut, so that the drawing is the same on any machine"


def test_a_second_render_writes_nothing(drawn: Graph) -> None:
    again = mirror(drawn)
    assert (again.written, again.removed, again.conflicts) == ((), (), ())


def test_a_drawing_follows_its_profile(drawn: Graph) -> None:
    drawn.execute("UPDATE node SET data = json_set(data, '$.self_us', 99.0) WHERE id = 'op:matmul/matmul_optimized.1'")
    assert DRAWING in mirror(drawn).written and "99.0 us" in text(drawn, DRAWING)
    drawn.execute("DELETE FROM node WHERE id IN ('profile:matmul', 'op:matmul/matmul_optimized.1')")
    assert {PAGE, DRAWING} <= set(mirror(drawn).removed)
    assert not (drawn.workspace.wiki / DRAWING).exists()


def test_an_edited_drawing_stays_and_is_reported(drawn: Graph) -> None:
    path = drawn.workspace.wiki / DRAWING
    path.write_text(path.read_text().replace("matmul", "mine"))
    mine = path.read_text()
    report = mirror(drawn)
    assert [c.path for c in report.conflicts] == [DRAWING] and path.read_text() == mine
    path.unlink()
    assert mirror(drawn).written == (DRAWING,)


def test_without_somebody_who_draws_there_is_no_drawing(graph: Graph, shared: Path) -> None:
    add_profile(graph, shared / "evidence/v6e_matmul/logdir", run="matmul")
    assert DRAWING not in render(graph).written and "flame graph" not in text(graph, PAGE)
