"""One graph of the installed jax, tokamax and flax for all tests that read it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import pytest

from kgagent.graph import Graph
from kgagent.ingest import IngestReport, ingest

from .helpers import graph_in

PACKAGES = ("jax", "tokamax", "flax")


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Graph, tuple[IngestReport, ...]]]:
    for package in PACKAGES:
        try:
            version(package)
        except PackageNotFoundError:
            pytest.skip(f"{package} is not installed")
    with graph_in(tmp_path_factory.mktemp("installed")) as graph:
        yield graph, ingest(graph, [f"pkg:{package}" for package in PACKAGES])
