"""Concept pages in the graph: what is written, that a second run writes nothing, and that what is gone goes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kgagent.graph import Graph, NewEdge, NewNode, find
from kgagent.knowledge import shipped_concepts, sync_concepts

from .hand_graph import put_source
from .pages import write_page

LEVER = 'levers:\n  - "pull"\nrequires:\n  - "pull -> concept:beta: only at night"\n'
FACT = "- Fast. (at: v6e; value: 2 ms; measured: pkg:toy/kernels.py::run; source: https://example.org/a)"


@pytest.fixture
def pages(graph: Graph) -> Path:
    folder = graph.workspace.concepts
    write_page(folder, "alpha", meta=LEVER, levers="- `pull`: pull it", facts=FACT, link="beta")
    write_page(folder, "beta")
    return folder


def changes(graph: Graph) -> int:
    return int(graph.db.total_changes)


def test_nodes_edges_and_claims_have_page_and_line(graph: Graph, pages: Path) -> None:
    report = sync_concepts(graph)
    assert (report.concepts, report.levers, report.claims, report.relations, report.problems) == (2, 1, 1, 1, ())
    alpha = graph.need("concept:alpha")
    assert (alpha.name, alpha.citation, alpha.made_by) == ("alpha title", f"{pages}/alpha.md:1", "knowledge")
    assert alpha.doc.startswith("What alpha is")
    assert {name: alpha.data[name] for name in ("aliases", "summary", "mechanism", "explanation")} == {
        "aliases": ["alpha alias"], "summary": "Why it is fast.", "mechanism": "Why it is fast.", "explanation": "How it works."}  # fmt: skip
    lever = graph.need("lever:pull")
    line = (pages / "alpha.md").read_text().splitlines().index("- `pull`: pull it") + 1
    assert (lever.doc, lever.citation) == ("pull it", f"{pages}/alpha.md:{line}")
    triples = {(e.src, e.type, e.dst, e.how, e.data.get("scope"), e.path) for e in graph.edges() if not e.src.startswith("claim:")}
    page = f"{pages}/alpha.md"
    assert triples == {
        ("concept:alpha", "enables", "lever:pull", "human", None, page),
        ("lever:pull", "requires", "concept:beta", "human", "only at night", page),
        ("concept:alpha", "mentions", "concept:beta", "human", None, page),
    }
    (claim,) = [e.src for e in graph.edges(type="supports", dst="concept:alpha")]
    row = graph.rows("SELECT c.text, c.op_point, c.value, c.unit, c.status, c.cited FROM claim c JOIN node n ON n.key = c.key WHERE n.id = ?", claim)
    assert row == [("Fast.", "v6e", 2.0, "ms", "measured", "pkg:toy/kernels.py::run; https://example.org/a")]


def test_found_by_title_and_alias(graph: Graph, pages: Path) -> None:
    sync_concepts(graph)
    for text in ("alpha", "alpha alias", "concept:alpha"):
        assert find(graph, text)[0].node.id == "concept:alpha"


def test_a_second_run_writes_nothing(graph: Graph) -> None:
    for page in shipped_concepts().glob("*.md"):
        shutil.copy(page, graph.workspace.concepts / page.name)
    first = sync_concepts(graph)
    assert first.added > 800 and not first.problems
    before = changes(graph)
    second = sync_concepts(graph)
    assert (second.added, second.updated, second.removed) == (0, 0, 0)
    assert changes(graph) == before


def test_a_claim_rests_on_the_symbol_it_cites_once_that_is_ingested(graph: Graph, pages: Path, tmp_path: Path) -> None:
    sync_concepts(graph)
    assert not graph.edges(type="based_on")
    toy = tmp_path / "toy"
    toy.mkdir()
    (toy / "kernels.py").write_text("def other():\n    pass\n\n\ndef run():\n    pass\n")
    put_source(graph, "toy", tmp_path, [toy / "kernels.py"])
    sync_concepts(graph)
    (edge,) = graph.edges(type="based_on")
    assert (edge.dst, edge.how, edge.data) == ("sym:toy.kernels.run", "exact", {"cited": "pkg:toy/kernels.py::run"})


def test_what_leaves_the_pages_leaves_the_graph(graph: Graph, pages: Path) -> None:
    sync_concepts(graph)
    graph.put_nodes([NewNode("lever:lane/x=1", "lever", "x=1", "lanes")])
    graph.put_edges([NewEdge("lever:lane/x=1", "tests_concept", "concept:beta", "lanes")])
    write_page(pages, "alpha", facts="- Slow. (source: arXiv:1805.02867)")
    report = sync_concepts(graph)
    assert (report.levers, report.claims) == (0, 1) and report.removed >= 3
    assert graph.node("lever:pull") is None
    assert graph.value("SELECT group_concat(text) FROM claim") == "Slow."
    (pages / "alpha.md").unlink()
    sync_concepts(graph)
    assert graph.node("concept:alpha") is None and graph.node("file:concepts/alpha.md") is None
    assert graph.value("SELECT count(*) FROM claim") == 0
    assert [e.src for e in graph.edges(dst="concept:beta")] == ["lever:lane/x=1"]


def test_a_broken_page_is_told_and_the_others_stand(graph: Graph, pages: Path) -> None:
    sync_concepts(graph)
    broken = (pages / "beta.md").read_text().replace('kind: "concept"', 'kind: "nothing"')
    (pages / "beta.md").write_text(broken)
    report = sync_concepts(graph)
    assert report.concepts == 1 and graph.node("concept:alpha") is not None
    kinds = [problem.what for problem in report.problems]
    assert kinds[0].startswith("kind is 'nothing'") and any("concept 'beta'" in what for what in kinds)
    assert graph.rows("SELECT status, reason FROM file f JOIN node n ON n.key = f.key WHERE n.id = 'file:concepts/beta.md'") == [("skipped", kinds[0])]
    (pages / "beta.md").write_text(broken.replace('"nothing"', '"concept"'))
    assert sync_concepts(graph).concepts == 2


def test_the_order_of_pages_and_runs_leaves_no_trace(graph: Graph, pages: Path) -> None:
    """Built up page by page, the graph says what it says when built at once."""
    beta = (pages / "beta.md").read_bytes()
    (pages / "beta.md").unlink()
    assert len(sync_concepts(graph).problems) == 2  # a relation and a link to a page that isn't there yet
    (pages / "beta.md").write_bytes(beta)
    sync_concepts(graph)
    said = [(e.src, e.type, e.dst, e.line, e.how, sorted(e.data.items())) for e in graph.edges()]
    graph.execute("DELETE FROM node WHERE id = 'concept:alpha' OR id LIKE 'claim:%' OR id LIKE 'lever:%'")
    sync_concepts(graph)
    assert sorted(said) == sorted((e.src, e.type, e.dst, e.line, e.how, sorted(e.data.items())) for e in graph.edges())
