"""The whole way on real source: jax's splash attention ingested, linked, and its mechanisms found on their lines."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kgagent.graph import Graph
from kgagent.ingest import ingest
from kgagent.knowledge import link, shipped_concepts, sync_concepts

from .packages import package_file

KERNEL = "jax/experimental/pallas/ops/tpu/splash_attention/splash_attention_kernel.py"
SYMBOL = "sym:jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel.flash_attention_kernel"

# innermost symbol, concept, detector, text of the line
SEEN = [
    (f"{SYMBOL}.body", "online-softmax", "rescale-by-max-change", "alpha = jnp.exp(m_prev - m_next)"),
    (f"{SYMBOL}.body", "online-softmax", "running-sum", "l_next = l_curr + alpha * l_prev"),
    (f"{SYMBOL}.body", "accumulation-precision", "f32-result", "qk = lax.dot_general(q, k, qk_dims, preferred_element_type=float32)"),
    (f"{SYMBOL}.run", "block-sparse-attention", "skip-step", "@pl.when(should_run)"),
    (f"{SYMBOL}.end", "accumulation-precision", "downcast-store", "o_ref[...] = (o_scratch_ref[...] * l_inv).astype(o_ref.dtype)"),
    (SYMBOL, "flash-attention", "scratch-output", "o_scratch_ref,"),
    (SYMBOL.replace("flash_attention_kernel", "_splash_attention_forward.k_index_map"), "grouped-query-attention", "head-index-map",
     "prefix = () if is_mqa else (_div(h, q_heads_per_kv_head),)"),
]  # fmt: skip


@pytest.fixture
def linked(graph: Graph) -> tuple[Graph, Path]:
    path = package_file(KERNEL)
    if isinstance(path, str):
        pytest.skip(path)
    ingest(graph, ["pkg:jax/experimental/pallas/ops/tpu/splash_attention"])
    for page in shipped_concepts().glob("*.md"):
        shutil.copy(page, graph.workspace.concepts / page.name)
    sync_concepts(graph)
    link(graph)
    return graph, path


def test_splash_attentions_mechanisms_stand_on_their_lines(linked: tuple[Graph, Path]) -> None:
    graph, path = linked
    lines = path.read_text(encoding="utf-8").splitlines()
    found = {
        (edge.src, edge.dst.removeprefix("concept:"), detector): edge
        for edge in graph.edges(type="mentions")
        if edge.how == "detector"
        for detector in (edge.data["detector"], *(label.split(" ", 1)[1] for label in edge.data.get("also", [])))
    }
    for symbol, concept, detector, text in SEEN:
        edge = found[symbol, concept, detector]
        assert lines[edge.line - 1].strip() == text
        assert edge.path == str(path)


def test_claims_rest_on_what_they_cite(linked: tuple[Graph, Path]) -> None:
    graph, _ = linked
    edges = [edge for edge in graph.edges(type="based_on") if "splash_attention" in edge.dst]
    assert len(edges) >= 8 and {edge.how for edge in edges} == {"exact"}
