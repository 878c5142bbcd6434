"""Fixtures shared by all tests: an empty workspace, its graph, and where the shared data stands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from kgagent.graph import Graph, open_graph
from kgagent.workspace import Workspace, create_workspace

settings.register_profile("kgagent", deadline=None)  # how long one example takes says more of the machine than of the code
settings.load_profile("kgagent")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return create_workspace(tmp_path / "workspace")


@pytest.fixture
def graph(workspace: Workspace) -> Iterator[Graph]:
    with open_graph(workspace, write=True) as opened:
        yield opened


@pytest.fixture
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the shared data folder stands beside the checkout, and is not here")
    return SHARED
