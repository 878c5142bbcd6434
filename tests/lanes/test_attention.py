"""The attention lane: every choice of its candidate computes what the reference does, at odd lengths too."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kgagent.graph import open_graph
from kgagent.lanes import load_lane, shipped_lanes, sync_lane, trace
from kgagent.workspace import create_workspace

needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None or importlib.util.find_spec("flatbuffers") is None, reason="jax isn't installed")


def module(name: str) -> ModuleType:
    """Imported without leaving bytecode in a folder that is shipped."""
    spec = importlib.util.spec_from_file_location(f"attention_{name}", shipped_lanes() / "attention" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    spec.loader.exec_module(loaded)
    sys.dont_write_bytecode = written
    return loaded


CHOICES: list[dict[str, Any]] = [
    {"impl": "einsum"}, {"impl": "grouped"}, {"impl": "dpa"}, {"impl": "chunked"}, {"impl": "chunked", "skip_masked": False},
    {"impl": "chunked", "block_q": 256}, {"impl": "chunked", "block_kv": 512}, {"impl": "splash"}, {"impl": "splash", "block_q": 256, "block_kv": 128},
]  # fmt: skip


@needs_jax
@pytest.mark.parametrize(
    ("knobs", "seq"), [*((knobs, 300) for knobs in CHOICES), ({"impl": "chunked"}, 1), ({"impl": "splash"}, 1)], ids=lambda value: str(value).replace(" ", "")
)
def test_candidate_equals_reference(knobs: dict[str, Any], seq: int) -> None:
    import numpy as np

    point = {"batch": 2, "q_heads": 4, "kv_heads": 2, "seq": seq, "head_dim": 32, "dtype": "float32"}
    arrays = module("inputs").inputs(3, point)
    expected = module("reference").reference(*arrays)
    got = module("candidate").candidate(*arrays, **knobs)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), atol=2e-6)


@needs_jax
def test_causality() -> None:
    import numpy as np

    point = {"batch": 1, "q_heads": 2, "kv_heads": 1, "seq": 40, "head_dim": 32, "dtype": "float32"}
    q, k, v = module("inputs").inputs(3, point)
    reference = module("reference").reference
    changed = reference(q, k.at[:, :, 20:].set(9.0), v.at[:, :, 20:].set(9.0))
    np.testing.assert_array_equal(np.asarray(changed)[:, :, :20], np.asarray(reference(q, k, v))[:, :, :20])


@needs_jax
def test_traces_for_both_platforms(tmp_path: Path) -> None:
    lane = load_lane(create_workspace(tmp_path / "w"), "attention")
    for platform, count in (("cpu", 3), ("tpu", 1)):
        traced = trace(lane, {"impl": "splash", "block_q": 128, "block_kv": 128}, platform=platform, scratch=tmp_path)
        assert traced.outcome == "completed", traced.message
        assert [export.op_point for export in traced.exports] == [point.name for point in lane.points(platform)]
        assert len(traced.exports) == count
        assert b"lanes/attention/candidate.py" in b"".join(export.stablehlo for export in traced.exports)
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


def test_sync_is_idempotent_and_makes_no_concepts(tmp_path: Path) -> None:
    from kgagent.graph import NewNode

    workspace = create_workspace(tmp_path / "w")
    lane = load_lane(workspace, "attention")
    with open_graph(workspace, write=True) as graph:
        sync_lane(graph, lane)
        before = graph.rows("SELECT id FROM node ORDER BY id"), graph.value("SELECT count(*) FROM edge")
        assert graph.value("SELECT count(*) FROM node WHERE kind = 'concept'") == 0
        sync_lane(graph, lane)
        assert before == (graph.rows("SELECT id FROM node ORDER BY id"), graph.value("SELECT count(*) FROM edge"))
        with graph.transaction():
            graph.put_nodes([NewNode("concept:tiling", "concept", "Tiling", "test")])
        sync_lane(graph, lane)
        tested = {edge.src for edge in graph.edges(type="tests_concept", dst="concept:tiling")}
        assert "lever:attention/impl=splash" in tested and "lever:attention/block_q" in tested
        assert graph.value("SELECT count(*) FROM lane_gate WHERE mandatory = 1") == len(lane.gates)
