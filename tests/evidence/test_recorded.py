"""Runs back from the graph: trees, gaps by concept, kernel digests, and profiles that outlive the graph."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kgagent.errors import EvidenceError, UnknownThing, UsageError
from kgagent.evidence.add import add_profile, restore_profiles
from kgagent.evidence.digest import kernel_digest, record_schedule
from kgagent.evidence.flame import flame
from kgagent.evidence.gap import NO_CONCEPT, by_class, by_line, gap
from kgagent.evidence.hlo import Module
from kgagent.evidence.llo import dump_files, read_schedule
from kgagent.evidence.record import op_id, record_module
from kgagent.evidence.recorded import by_concept, evidence_tree, weighed_from_graph
from kgagent.evidence.weigh import weigh_module
from kgagent.graph import Graph, NewEdge, NewNode, open_graph
from tests.evidence.test_record import CANDIDATE, LAUNCH, REFERENCE, ingest_splash


def add_concepts(graph: Graph, symbol: str, *concepts: str) -> None:
    with graph.transaction():
        graph.put_nodes(NewNode(f"concept:{name}", "concept", name, "test") for name in concepts)
        graph.put_edges(NewEdge(symbol, "mentions", f"concept:{name}", "test", how="detector") for name in concepts)


@pytest.mark.parametrize("limit", [200, 3])
def test_the_graph_gives_the_same_weights_as_the_module(graph: Graph, train_steps: dict[tuple[bool, bool], Module], limit: int) -> None:
    module = train_steps[True, True]
    record_module(graph, CANDIDATE, module, lane=None, label="cpu", limit=limit)
    direct, recorded = weigh_module(module, "bytes"), weighed_from_graph(graph, CANDIDATE)
    assert recorded.total == pytest.approx(direct.total) and recorded.unit == "bytes" and recorded.predicted
    assert sum(weight for _, weight in recorded.lines()) == pytest.approx(direct.total)
    assert sum(child.weight for child in flame(recorded).children.values()) == pytest.approx(direct.total)
    rows = gap(direct, recorded, by_class).rows
    assert all(row.difference == pytest.approx(0) for row in rows)
    if limit == 200:
        assert [(place, pytest.approx(weight)) for place, weight in direct.lines()] == list(recorded.lines())


def test_the_tree_shows_line_symbol_kernel_and_concept(graph: Graph, splash: Module) -> None:
    wrapper = ingest_splash(graph, splash)
    add_concepts(graph, wrapper, "splash-attention")
    record_module(graph, CANDIDATE, splash, lane=None, label="predicted")
    tree = evidence_tree(graph, CANDIDATE)
    row = next(row for row in tree.rows if row.name == LAUNCH)
    assert row.kernel == "kernel:splash" and row.lines[0].depth == 0
    assert (row.lines[0].symbol, row.lines[0].concepts) == (wrapper, ("concept:splash-attention",))
    assert any("programs.py" in line.place for line in row.lines)
    assert tree.rows_left_out == 0 and tree.remainder == "100.0% of bytes has a line; 0.0% unattributed"
    short = evidence_tree(graph, CANDIDATE, limit=1)
    assert short.rows_left_out == len(tree.rows) - 1
    assert short.rows[0].weight + short.weight_left_out == pytest.approx(tree.total)


def test_a_symbol_without_concepts_answers_for_the_one_around_it(graph: Graph, splash: Module) -> None:
    wrapper = ingest_splash(graph, splash)
    add_concepts(graph, "sym:jax.module", "outer")
    with graph.transaction():
        graph.put_edges([NewEdge("sym:jax.module", "defines", wrapper, "test")])
    record_module(graph, CANDIDATE, splash, lane=None, label="predicted")
    row = next(row for row in evidence_tree(graph, CANDIDATE).rows if row.name == LAUNCH)
    assert row.lines[0].concepts == ("concept:outer",)


def test_a_gap_by_concept_accounts_for_everything(graph: Graph, einsum: Module, splash: Module) -> None:
    add_concepts(graph, ingest_splash(graph, splash), "splash-attention")
    record_module(graph, REFERENCE, einsum, lane=None, label="predicted")
    record_module(graph, CANDIDATE, splash, lane=None, label="predicted")
    a, b = weighed_from_graph(graph, REFERENCE), weighed_from_graph(graph, CANDIDATE)
    found = gap(a, b, by_concept(graph), "concept")
    rows = {row.key: row for row in found.rows}
    assert rows["concept:splash-attention"].a == 0 and rows["concept:splash-attention"].difference > 0
    assert rows[NO_CONCEPT].difference < -(8 * 2048 * 2048 * 4)
    assert sum(row.difference for row in found.rows) == pytest.approx(b.total - a.total)
    largest = gap(a, b, by_line).rows[0]
    assert "programs.py" in largest.key and largest.difference < 0


def test_only_profiles_have_evidence(graph: Graph) -> None:
    with graph.transaction():
        graph.put_nodes([NewNode("concept:x", "concept", "x", "test")])
    with pytest.raises(UsageError, match="not a profile"):
        weighed_from_graph(graph, "concept:x")
    with pytest.raises(UnknownThing):
        evidence_tree(graph, "profile:nobody")


def test_a_kernels_digest(graph: Graph, splash: Module, shared: Path) -> None:
    wrapper = ingest_splash(graph, splash)
    add_concepts(graph, wrapper, "online-softmax")
    with graph.transaction():
        graph.put_nodes([NewNode("lever:stream", "lever", "stream softmax", "test")])
        graph.put_edges([NewEdge("concept:online-softmax", "enables", "lever:stream", "test")])
    record_module(graph, CANDIDATE, splash, lane=None, label="predicted")
    before = kernel_digest(graph, CANDIDATE, "splash_mha_fwd_no_residuals")
    assert (before.schedule, before.vmem_bytes, before.vmem_frac, before.self_us) == (None, None, None, None)
    assert (before.grid, before.steps, before.kernel) == ((8, 4, 4), 128, "kernel:splash")
    (files,) = dump_files(shared / "evidence/v6e_matmul/jf_dump")  # any schedule will do
    record_schedule(graph, op_id(CANDIDATE, LAUNCH), read_schedule(files), vmem_limit_bytes=32 * 2**20)
    digest = kernel_digest(graph, CANDIDATE, LAUNCH)
    assert digest.schedule is not None and (digest.schedule["bundles"], digest.schedule["loops"][0]["bound"]) == (2705, 16)
    assert digest.vmem_frac == pytest.approx(9510912 / 2**25)
    assert digest.concepts == ("concept:online-softmax",)
    assert [(lever.lever, lever.concept) for lever in digest.levers] == [("lever:stream", "concept:online-softmax")]
    with pytest.raises(UnknownThing) as caught:
        kernel_digest(graph, CANDIDATE, "nobody")
    assert "splash_mha_fwd_no_residuals" in caught.value.hint


def test_an_added_profile_outlives_the_graph(graph: Graph, shared: Path) -> None:
    added = add_profile(graph, shared / "evidence/v6e_matmul/logdir", run="fixture")
    assert (added.id, added.modules, added.missing_hlo, added.weighed.total) == ("profile:fixture", ("jit_matmul_optimized",), (), 227.2625)
    rows = "SELECT id, data FROM node WHERE kind IN ('profile', 'op', 'line') ORDER BY id"
    first = graph.rows(rows)
    workspace = graph.workspace
    graph.close()
    for path in workspace.root.glob("graph.db*"):
        path.unlink()
    with open_graph(workspace, write=True) as rebuilt:
        assert restore_profiles(rebuilt) == ("profile:fixture",)
        assert rebuilt.rows(rows) == first


def test_a_trace_that_lost_its_hlo_is_joined_through_the_executables_text(graph: Graph, shared: Path, tmp_path: Path) -> None:
    """jax loses the HLO of a trace after some CPU compiles; the run's own text brings the lines back."""
    source = next((shared / "evidence/v6e_matmul/logdir").rglob("*.xplane.pb"))
    raw = source.read_bytes()
    lost = tmp_path / "host0.xplane.pb"
    lost.write_bytes(raw.replace(b"/host:metadata", b"/host:metadatX"))
    alone = add_profile(graph, lost, run="alone")
    assert alone.missing_hlo == ("jit_matmul_optimized",) and alone.weighed.attributed == 0 and alone.weighed.total == 227.2625
    assert graph.need("profile:alone").data["missing_hlo"] == ["jit_matmul_optimized"]
    (hlo,) = (shared / "evidence/v6e_matmul/hlo_dump").glob("*.txt")
    joined = add_profile(graph, lost, run="joined", hlo=[hlo])
    assert joined.missing_hlo == () and joined.weighed.attributed == 227.2625


def test_what_cannot_be_added_leaves_nothing(graph: Graph, shared: Path, tmp_path: Path) -> None:
    cut = tmp_path / "t.xplane.pb"
    cut.write_bytes(next((shared / "evidence/v6e_matmul/logdir").rglob("*.xplane.pb")).read_bytes()[:300_000])
    with pytest.raises(EvidenceError):
        add_profile(graph, cut, run="cut")
    with pytest.raises(UsageError):
        add_profile(graph, shared / "evidence/v6e_matmul/logdir", run="../up")
    with pytest.raises(UnknownThing):
        add_profile(graph, shared / "evidence/v6e_matmul/logdir", run="ok", lane="nobody")
    assert not graph.rows("SELECT 1 FROM node WHERE kind IN ('profile', 'op', 'line')")
    assert not (graph.workspace.raw / "profiles").exists()
    assert restore_profiles(graph) == ()


def test_a_damaged_manifest_is_named(graph: Graph, shared: Path) -> None:
    from kgagent.errors import StorageError

    add_profile(graph, shared / "evidence/v6e_matmul/logdir", run="fixture")
    manifest = graph.workspace.raw / "profiles/fixture.json"
    facts = json.loads(manifest.read_text())
    manifest.write_text("{")
    with pytest.raises(StorageError, match="manifest is damaged"):
        restore_profiles(graph)
    manifest.write_text(json.dumps(facts))
    shutil.rmtree(graph.workspace.objects)
    with pytest.raises(StorageError, match="artefact missing"):
        restore_profiles(graph)
