"""A candidate and its reference through the real TPU compiler, where it is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgagent.compiler import compiler_status
from kgagent.errors import UsageError
from kgagent.executor import preflight, refile_preflights
from kgagent.graph import Graph, open_graph
from kgagent.lanes import Lane, load_lane
from kgagent.workspace import create_workspace

pytestmark = pytest.mark.skipif(not compiler_status().available, reason="libtpu isn't installed")


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, Lane]:
    workspace = create_workspace(tmp_path_factory.mktemp("preflight") / "w")
    return open_graph(workspace, write=True), load_lane(workspace, "attention")


def test_splash_for_v6e(attention: tuple[Graph, Lane]) -> None:
    graph, lane = attention
    told = preflight(graph, lane, {"impl": "splash"}, "v6e:2x2")
    assert (told.status, told.label, told.error) == ("ok", "predicted", "")
    assert any("splash" in kernel for kernel in told.kernels)
    assert told.mechanism is not None and told.mechanism.result == "pass"
    temp, reference_temp = told.memory["temp_bytes"], told.reference_memory["temp_bytes"]
    assert temp is not None and reference_temp is not None and temp < reference_temp / 10
    gone = [change for change in told.went if "4096,4096" in change.shape]
    assert gone and all(Path(change.line.rpartition(":")[0]).is_file() for change in gone if change.line)
    assert any(change.op_class == "kernel" and "splash" in change.name for change in told.came)
    assert graph.edges(src=told.profile, type="differs_from", dst=told.reference_profile)
    assert graph.edges(src=told.profile, type="uses", dst=told.configuration)
    assert graph.need(told.profile).data["label"] == "predicted"

    (graph.workspace.graph_db.parent / "copy").mkdir()
    rebuilt = create_workspace(graph.workspace.root / "copy")
    for name in ("objects", "preflights"):
        target = rebuilt.raw / name
        if target.exists():
            target.rmdir()
        target.symlink_to(graph.workspace.raw / name)
    with open_graph(rebuilt, write=True) as fresh:
        assert refile_preflights(fresh) == 1
        assert fresh.need(told.profile).data == graph.need(told.profile).data
        assert len(fresh.edges(src=told.profile, type="removes")) == len(graph.edges(src=told.profile, type="removes"))


def test_unknown_topologies_and_knobs_are_usage_errors(attention: tuple[Graph, Lane]) -> None:
    graph, lane = attention
    with pytest.raises(UsageError, match="topology"):
        preflight(graph, lane, {"impl": "splash"}, "v99:2x2")
    with pytest.raises(UsageError, match="isn't a choice"):
        preflight(graph, lane, {"impl": "fast"}, "v6e:2x2")


def test_an_unknown_flag_blocks(attention: tuple[Graph, Lane]) -> None:
    graph, lane = attention
    told = preflight(graph, lane, {"impl": "splash"}, "v6e:2x2", flags={"xla_tpu_no_such_flag": "true"})
    assert told.status == "blocked" and "xla_tpu_no_such_flag" in told.error
    assert graph.need(told.profile).data["status"] == "blocked"
