"""One toy workspace with its reference, made once; tests that change it take a copy."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgagent.executor import ensure_reference, run_experiment
from kgagent.graph import Graph, open_graph
from kgagent.lanes import Lane, load_lane
from kgagent.workspace import Workspace, create_workspace
from tests.executor.toy import TRIES, propose, write_toy


@pytest.fixture(scope="session")
def toy_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with the toy lane's reference filed."""
    if importlib.util.find_spec("jax") is None or importlib.util.find_spec("flatbuffers") is None:
        pytest.skip("jax isn't installed")
    workspace = create_workspace(tmp_path_factory.mktemp("toy") / "w")
    lane = write_toy(workspace)
    with open_graph(workspace, write=True) as graph:
        ensure_reference(graph, lane)
    return workspace.root


@pytest.fixture(scope="session")
def decided_home(toy_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same after a supported experiment, begun anew where a busy machine hid the tenfold gain from three pairs."""
    for _ in range(TRIES):
        home = tmp_path_factory.mktemp("decided") / "w"
        shutil.copytree(toy_home, home)
        workspace = Workspace(home)
        lane = load_lane(workspace, "toy")
        with open_graph(workspace, write=True) as graph:
            if run_experiment(graph, lane, propose(graph, lane, "dot")).verdict != "inconclusive":
                break
    return home


@pytest.fixture
def quick(toy: Workspace) -> Workspace:
    """One pair only, where the verdict doesn't matter."""
    path = toy.lanes / "toy" / "lane.toml"
    text = path.read_text()
    assert "pairs = 3" in text
    path.write_text(text.replace("pairs = 3", "pairs = 1", 1))
    return toy


@pytest.fixture
def toy(toy_home: Path, tmp_path: Path) -> Workspace:
    """A copy of it, for a test to do what it likes with."""
    shutil.copytree(toy_home, tmp_path / "w")
    return Workspace(tmp_path / "w")


@pytest.fixture
def toy_graph(toy: Workspace) -> Iterator[tuple[Graph, Lane]]:
    with open_graph(toy, write=True) as graph:
        yield graph, load_lane(toy, "toy")
