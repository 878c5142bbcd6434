"""An ingest after edits leaves the graph that a fresh ingest of the same files makes, whatever the edits and whoever parsed first."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kgagent.ingest.pool as pool
import kgagent.ingest.write as write
from kgagent.ingest import ingest, restore

from .helpers import contents, graph_in, search_is_whole, write_tree
from .texts import TEXTS

PATHS = ("pkg/__init__.py", "pkg/a.py", "pkg/b.py", "pkg/c.py", "pkg/sub/__init__.py", "pkg/sub/deep.py", "pkg/a/__init__.py", "other.py")

operation = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(PATHS), st.integers(0, len(TEXTS) - 1)),
    st.tuples(st.just("delete"), st.sampled_from(PATHS), st.just(0)),
    st.tuples(st.just("move"), st.sampled_from(PATHS), st.integers(0, len(PATHS) - 1)),
    st.tuples(st.just("shift"), st.sampled_from(PATHS), st.integers(1, 3)),
)


def apply(root: Path, change: tuple[str, str, int]) -> None:
    kind, path, number = change
    file = root / path
    if kind == "write":
        write_tree(root, {path: TEXTS[number]})
    elif file.is_file():
        if kind == "delete":
            file.unlink()
        elif kind == "shift":
            file.write_text("# moved down\n" * number + file.read_text())
        else:
            target = root / PATHS[number]
            target.parent.mkdir(parents=True, exist_ok=True)
            file.replace(target)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    start=st.lists(st.integers(0, len(TEXTS) - 1), min_size=len(PATHS), max_size=len(PATHS)),
    rounds=st.lists(st.lists(operation, min_size=1, max_size=4), min_size=1, max_size=4),
)
def test_incremental_equals_full(start: list[int], rounds: list[list[tuple[str, str, int]]]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        root = write_tree(folder / "tree", {path: TEXTS[number] for path, number in zip(PATHS, start, strict=True)} | {"keep.py": "def kept(): pass\n"})
        with graph_in(folder / "one") as graph:
            ingest(graph, [str(root)])
            for changes in rounds:
                for change in changes:
                    apply(root, change)
                ingest(graph, [str(root)])
            one = contents(graph)
            search_is_whole(graph)
        with graph_in(folder / "two") as graph:
            ingest(graph, [str(root)])
            two = contents(graph)
        for table in two:
            assert one[table] == two[table], table
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def two_trees(tmp_path: Path) -> tuple[str, str]:
    """A library and its user, the first naming nothing of the second."""
    ops = "def op(x): return x\n\nclass Base:\n    def run(self): return self.step()\n"
    use = "import lib\nfrom lib.ops import Base\n\nclass Mine(Base):\n    def step(self): return lib.op(1)\n\ndef go(): return lib.gone(), Mine().run()\n"
    library = write_tree(tmp_path / "library", {"lib/__init__.py": "from lib.ops import op as op\n", "lib/ops.py": ops})
    user = write_tree(tmp_path / "user", {"use.py": use})
    return str(library), str(user)


def test_trees_meet_in_either_order(tmp_path: Path, two_trees: tuple[str, str]) -> None:
    found = []
    for name, order in (("ab", two_trees), ("ba", two_trees[::-1])):
        with graph_in(tmp_path / name) as graph:
            for locator in order:
                ingest(graph, [locator])
            found.append(contents(graph))
            calls = graph.rows(
                "SELECT b.id, e.how FROM edge e JOIN node a ON a.key = e.src JOIN node b ON b.key = e.dst WHERE a.id = 'sym:use.Mine.step' AND e.type = 'calls'"
            )
            assert calls == [("sym:lib.ops.op", "re-export")]
    for table in ("node", "edge", "kernel", "module", "depends"):
        assert found[0][table] == found[1][table], table


@pytest.mark.parametrize("files_for_bulk", [1, 10_000])
@pytest.mark.parametrize("alone_bytes", [0, 10**9])
def test_rows_do_not_depend_on_who_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files_for_bulk: int, alone_bytes: int) -> None:
    chance = random.Random(3)
    files = {f"pkg/m{i}.py": chance.choice(TEXTS[1:7]) for i in range(40)} | {path: TEXTS[i] for i, path in enumerate(PATHS)}
    root = write_tree(tmp_path / "tree", files)
    with graph_in(tmp_path / "plain") as graph:
        ingest(graph, [str(root)])
        expected = contents(graph)
    monkeypatch.setattr(write, "BULK_FILES", files_for_bulk)
    monkeypatch.setattr(pool, "ALONE_BYTES", alone_bytes)
    monkeypatch.setattr(pool, "BATCH_BYTES", 500)
    with graph_in(tmp_path / "other") as graph:
        ingest(graph, [str(root)])
        assert contents(graph) == expected
        search_is_whole(graph)
        ingest(graph, [str(root)])
        assert contents(graph) == expected


def test_restore_needs_only_raw(tmp_path: Path, two_trees: tuple[str, str]) -> None:
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, two_trees)
        expected = contents(graph)
    for tree in two_trees:
        shutil.rmtree(tree)
    (tmp_path / "ws" / "graph.db").unlink()
    with graph_in(tmp_path / "ws") as graph:
        reports = restore(graph)
        assert [report.name for report in reports] == ["library", "user"]
        assert contents(graph) == expected
