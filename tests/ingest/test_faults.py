"""A fault met in one file costs that file; one met in a source costs that source; both are told in a line and counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kgagent.ingest.pool as pool
from kgagent.errors import IngestError
from kgagent.ingest import ingest, list_sources
from kgagent.ingest.modules import Module
from kgagent.ingest.relate import Related, Relator
from kgagent.ingest.update import Update

from .helpers import contents, edges, graph_in, search_is_whole, write_tree

LINKED = """
class C:
    def f(self):
        self.node = self.node.next
        self.node.go()

    def g(self):
        self.left, self.right = self.right, self.left
        self.left = self.right.left
        self.right = self.left.right
        return self.left.right.go()

def walk(node):
    while node: node = node.next
    return node.go()
"""
FINE = "def f(): return g()\ndef g(): pass\n"


def test_a_loop_over_a_linked_structure_ends(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", {"p/__init__.py": "", "p/linked.py": LINKED, "p/fine.py": FINE})
    with graph_in(tmp_path / "ws") as graph:
        (report,) = ingest(graph, [str(tree)])
        assert report.problems == ()
        assert {"p.linked.C.f", "p.linked.walk"} <= {edge[2] for edge in edges(graph, "defines")}
        assert ("p.fine.f", "calls", "p.fine.g", "exact") in edges(graph, "calls")


HOSTILE = {
    "nested.json": '{"path": ' + "[" * 200_000 + "]" * 200_000 + "}",
    "half.json": '[{"name": "half \\ud800", "path": "a.py", "claim": "\\udfff"}]',
    "wide.csv": 'name,path,claim\n"' + "x" * 200_000 + '",a.py,b\n',
    "coding.py": "# coding: undefined\nx = '\u00e9'\n",
    "codec.py": "# coding: hex\nx = '\u00e9'\n",
    "long.py": "x = " + " + ".join(["y"] * 20_000) + "\n",
    "chain.py": "x = a" + ".b()" * 3_000 + "\n",
    "unclosed.md": "```\n# no\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_costs_itself(tmp_path: Path, name: str) -> None:
    tree = write_tree(tmp_path / "tree", {"fine.py": FINE})
    (tree / name).write_bytes(HOSTILE[name].encode("latin-1" if "coding" in name or "codec" in name else "utf-8"))
    with graph_in(tmp_path / "ws") as graph:
        (report,) = ingest(graph, [str(tree)])
        assert ("fine.f", "calls", "fine.g", "exact") in edges(graph, "calls")
        assert all(problem.path == name for problem in report.problems)
        search_is_whole(graph)


def test_a_file_name_that_is_no_text_is_passed_over(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", {"fine.py": FINE})
    try:
        Path(os.fsdecode(os.fsencode(tree) + b"/bad\xff.py")).write_text("x = 1\n")
    except OSError:
        pytest.skip("this file system holds UTF-8 names only")
    with graph_in(tmp_path / "ws") as graph:
        (report,) = ingest(graph, [str(tree)])
        assert [problem.reason for problem in report.problems] == ["its name is not UTF-8"]
        assert report.skipped == 1


def test_a_fault_in_resolving_costs_the_files_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = write_tree(tmp_path / "tree", {"bad.py": "import fine\ndef b(): return fine.f()\n", "fine.py": FINE})
    whole = Relator.relate

    def faulty(self: Relator, facts: dict[str, Any], module: Module, path: str) -> Related:
        related = whole(self, facts, module, path)
        if path == "bad.py":
            raise RecursionError("too deep")
        return related

    with graph_in(tmp_path / "ws") as graph:
        with monkeypatch.context() as patch:
            patch.setattr(Relator, "relate", faulty)
            (report,) = ingest(graph, [str(tree)])
        assert [str(p) for p in report.problems] == ["bad.py: its references are not resolved: RecursionError: too deep"]
        assert graph.node("sym:bad.b") is not None
        assert ("fine.f", "calls", "fine.g", "exact") in edges(graph, "calls")
        write_tree(tree, {"fine.py": FINE + "def new(): pass\n", "bad.py": "import fine\ndef b(): return fine.f() \n"})
        (again,) = ingest(graph, [str(tree)])
        assert again.problems == ()
        assert ("bad.b", "calls", "fine.f", "exact") in edges(graph, "calls")
        one = contents(graph)
    with graph_in(tmp_path / "fresh") as graph:
        ingest(graph, [str(tree)])
        assert contents(graph) == one


def test_a_fault_in_one_source_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = [str(write_tree(tmp_path / name, {f"{name}.py": FINE})) for name in ("first", "second", "third")]
    whole = Update.counts

    def faulty(self: Update) -> dict[str, Any]:
        if self.source.name == "second":
            raise KeyError("lost")
        return whole(self)

    monkeypatch.setattr(Update, "counts", faulty)
    with graph_in(tmp_path / "ws") as graph:
        with pytest.raises(IngestError, match=r"1 of 3 sources.*second.*KeyError: 'lost'; read: first, third") as told:
            ingest(graph, trees)
        assert told.value.where.startswith("test_faults.py:")
        assert [row.name for row in list_sources(graph)] == ["first", "third"]
        assert graph.node("sym:second.f") is None
        search_is_whole(graph)


MORTAL = """
import os
import kgagent.ingest.parse as parse
from kgagent.ingest.worker import main

whole = parse.parse

def parsed(task):
    if task.path == "deadly.py":
        os._exit(9)
    return whole(task)

parse.parse = parsed
main()
"""


def test_a_file_that_ends_its_process_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = write_tree(tmp_path / "tree", {f"m{i}.py": f"def f{i}(): pass\n" for i in range(6)} | {"deadly.py": FINE})
    environment = {**os.environ, "PYTHONPATH": str(Path(pool.__file__).parents[2])}

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", MORTAL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    monkeypatch.setattr(pool, "ALONE_BYTES", 0)
    monkeypatch.setattr(pool, "_start", start)
    with graph_in(tmp_path / "ws") as graph:
        (report,) = ingest(graph, [str(tree)])
        assert [str(problem) for problem in report.problems] == ["deadly.py: reading it ended the parsing process (it ended with 9)"]
        assert report.files == 7
        assert {f"m{i}.f{i}" for i in range(6)} <= {edge[2] for edge in edges(graph, "defines")}
