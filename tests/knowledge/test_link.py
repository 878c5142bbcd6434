"""Linking: innermost symbols, callers through aliases, knobs, flags and ops; nothing twice; only what changed is read again."""

from __future__ import annotations

import random
import shutil
import time
from importlib import util
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgagent.graph import Edge, Graph, NewNode, open_graph
from kgagent.knowledge import link, shipped_concepts, sync_concepts
from kgagent.workspace import create_workspace

from .hand_graph import put_source, touch_file
from .pages import write_page

CODE = '''"""Mentions an online softmax."""
import lib.kernels as k


class Config:
  block_q: int = 128


def outer(x):
  def body(m_prev, m_next):
    alpha = exp(m_prev - m_next)
    return alpha * exp(m_prev - m_next)
  return k.make_kernel(body, block_q=2)


FLAGS = "--xla_limit_kib=3"
'''
META = """detectors:
  - "source rescale: exp\\\\(m_prev - m_next\\\\)"
  - "parameter blocks: block_q"
  - "symbol maker: lib.kernels.make_*"
  - "flag limit: xla_limit_kib"
  - "alias named: online softmax"
  - "hlo call: custom-call kernel=*soft*"
"""


@pytest.fixture
def toy(graph: Graph, tmp_path: Path) -> Graph:
    package = tmp_path / "code" / "app"
    package.mkdir(parents=True)
    (package / "main.py").write_text(CODE)
    put_source(graph, "app", tmp_path / "code", [package / "main.py"])
    write_page(graph.workspace.concepts, "soft", meta=META)
    sync_concepts(graph)
    return graph


def mentions(graph: Graph) -> list[Edge]:
    return [edge for edge in graph.edges(type="mentions") if edge.how == "detector"]


def said(graph: Graph) -> set[tuple[str, str, int, str]]:
    return {(e.src, e.dst, e.line, str(sorted(e.data.items()))) for e in mentions(graph)}


def test_each_match_belongs_to_the_innermost_symbol(toy: Graph) -> None:
    report = link(toy)
    found = {(e.src, e.line, e.data["kind"], e.data["detector"]) for e in mentions(toy)}
    assert found == {
        ("sym:app.main", 1, "alias", "named"),
        ("sym:app.main", 16, "flag", "limit"),
        ("sym:app.main.Config", 6, "parameter", "blocks"),
        ("sym:app.main.outer.body", 11, "source", "rescale"),
        ("sym:app.main.outer", 13, "parameter", "blocks"),
    }
    (rescale,) = [e for e in mentions(toy) if e.data["detector"] == "rescale"]
    assert rescale.path is not None and rescale.path.endswith("code/app/main.py")
    assert (rescale.data["text"], rescale.data["count"]) == ("alpha = exp(m_prev - m_next)", 2)
    assert (report.mentions, report.added, report.concepts, report.files, report.scanned) == (5, 5, 1, 1, 1)


def test_what_stands_outside_every_symbol_is_left_out(toy: Graph) -> None:
    toy.execute("DELETE FROM node WHERE id = 'sym:app.main'")
    link(toy)
    assert {e.src for e in mentions(toy)} == {"sym:app.main.Config", "sym:app.main.outer", "sym:app.main.outer.body"}


def test_detectors_that_fire_on_one_line_share_its_edge(toy: Graph) -> None:
    """The call on line 13 is both an argument name and a resolved symbol."""
    link(toy)
    (edge,) = [e for e in mentions(toy) if e.line == 13]
    assert (edge.data["detector"], edge.data["also"]) == ("blocks", ["symbol maker"])
    assert dict(link(toy).fired) == {f"soft: {label}": n for label, n in
                                     (("alias named", 1), ("flag limit", 1), ("parameter blocks", 2), ("source rescale", 1), ("symbol maker", 1))}  # fmt: skip


def test_a_second_run_changes_nothing_and_reads_nothing(toy: Graph) -> None:
    link(toy)
    before, keys = said(toy), {e.key for e in mentions(toy)}
    report = link(toy)
    assert (report.added, report.removed, report.scanned) == (0, 0, 0)
    assert said(toy) == before and {e.key for e in mentions(toy)} == keys


def test_knobs_flags_and_ops_are_linked_by_name(toy: Graph) -> None:
    toy.put_nodes([
        NewNode("knob:app.Config.block_q", "knob", "block_q", "test"),
        NewNode("knob:app.Config.other", "knob", "other", "test"),
        NewNode("flag:xla_limit_kib", "flag", "xla_limit_kib", "test"),
        NewNode("op:a/b/custom-call.1", "op", "custom-call.1", "test", data={"opcode": "custom-call", "kernel_name": "softmax_fwd", "shape": "f32[8]"}),
        NewNode("op:a/b/custom-call.2", "op", "custom-call.2", "test", data={"opcode": "custom-call", "kernel_name": "gmm", "shape": "f32[8]"}),
    ])  # fmt: skip
    link(toy)
    assert {e.src for e in mentions(toy) if not e.src.startswith("sym:")} == {"knob:app.Config.block_q", "flag:xla_limit_kib", "op:a/b/custom-call.1"}


def test_only_a_changed_file_is_read_again(toy: Graph, tmp_path: Path) -> None:
    other = tmp_path / "code2" / "more.py"
    other.parent.mkdir()
    other.write_text("def f(block_q: int):\n  pass\n")
    put_source(toy, "more", tmp_path / "code2", [other])
    assert link(toy).scanned == 2
    touch_file(toy, "file:app/app/main.py", CODE.replace("exp(m_prev - m_next)", "exp(m_prev + m_next)").encode())
    report = link(toy)
    assert (report.scanned, report.added, report.removed) == (1, 0, 1)
    assert "rescale" not in {e.data["detector"] for e in mentions(toy)}


def test_edges_lost_behind_our_back_come_back(toy: Graph) -> None:
    """A file ingested anew has new nodes and no edges, though its bytes are the same."""
    link(toy)
    before = said(toy)
    toy.execute("DELETE FROM edge WHERE type = 'mentions' AND how = 'detector' AND line < 12")
    assert link(toy).scanned == 1
    assert said(toy) == before


def test_changed_detectors_are_run_over_everything(toy: Graph) -> None:
    link(toy)
    write_page(toy.workspace.concepts, "soft", meta='detectors:\n  - "source alpha: return alpha"\n')
    sync_concepts(toy)
    report = link(toy)
    assert (report.scanned, report.added, report.removed) == (1, 1, 5)
    assert [e.data["text"] for e in mentions(toy)] == ["return alpha * exp(m_prev - m_next)"]


def test_a_removed_page_takes_its_mentions_along(toy: Graph) -> None:
    link(toy)
    (toy.workspace.concepts / "soft.md").unlink()
    sync_concepts(toy)
    assert link(toy).mentions == 0 and not mentions(toy)


def test_a_page_that_was_not_synced_is_told(toy: Graph) -> None:
    write_page(toy.workspace.concepts, "newer", meta='detectors:\n  - "source x: alpha"\n')
    report = link(toy)
    assert [problem.hint for problem in report.problems] == ["run sync_concepts first"]
    assert not toy.edges(dst="concept:newer")


LINES = ["alpha = exp(m_prev - m_next)", "f(block_q=1)", "x = 1", "# online softmax", "--xla_limit_kib", "k.make_kernel()"]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(st.tuples(st.integers(0, 3), st.lists(st.sampled_from(LINES), max_size=5)), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_after_any_edits_it_is_as_if_linked_at_once(tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, list[str]]], seed: int) -> None:
    root = tmp_path_factory.mktemp("edits")
    texts = {i: ["x = 1"] * 6 for i in range(4)}

    def workspace(name: str) -> Graph:
        opened = open_graph(create_workspace(root / name), write=True)
        write_page(opened.workspace.concepts, "soft", meta=META)
        sync_concepts(opened)
        code = root / name / "code"
        code.mkdir()
        for i, lines in texts.items():
            (code / f"m{i}.py").write_text("\n".join(lines) + "\n")
        put_source(opened, "code", code, sorted(code.glob("*.py")))
        return opened

    def padded(lines: list[str]) -> list[str]:
        return [line if line.startswith(("#", "x")) else f"# {line}" for line in lines] + ["x = 1"] * (6 - len(lines))

    with workspace("one") as edited:
        order = random.Random(seed)
        for i, lines in edits:
            texts[i] = padded(lines)
            touch_file(edited, f"file:code/m{i}.py", ("\n".join(texts[i]) + "\n").encode())
            if order.random() < 0.6:
                link(edited)
        link(edited)
        with workspace("two") as fresh:
            link(fresh)
            assert said(edited) == said(fresh)


@pytest.mark.slow
def test_jax_and_tokamax_are_linked_within_ten_seconds(graph: Graph) -> None:
    for name in ("jax", "tokamax"):
        spec = util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            pytest.skip(f"{name} isn't installed")
        package = Path(next(iter(spec.submodule_search_locations)))
        put_source(graph, name, package.parent, sorted(package.rglob("*.py")))
    for page in shipped_concepts().glob("*.md"):
        shutil.copy(page, graph.workspace.concepts / page.name)
    sync_concepts(graph)
    start = time.process_time()
    report = link(graph)
    assert report.files > 1000 and report.mentions > 5000 and report.concepts >= 40
    assert time.process_time() - start < 10
    start = time.process_time()
    assert link(graph).added == 0
    assert time.process_time() - start < 1.5
