"""Where source may come from, and what is refused: each bad input has one clear message and leaves the graph as it was."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import kgagent.ingest.pool as pool
from kgagent.errors import Busy, IngestError, KgError, StorageError, UnknownThing
from kgagent.graph import Graph, open_graph
from kgagent.ingest import forget, ingest, list_sources, restore
from kgagent.ingest.archives import unpack
from kgagent.ingest.fetch import split_revision, version_in
from kgagent.ingest.sources import Source, module_name

from .helpers import contents, edges, graph_in, search_is_whole, write_tree

SETUP = "from pathlib import Path\nPath('/tmp/kgagent-sdist-was-run').write_text('run')\nfrom setuptools import setup\nsetup(name='tiny', version='2.0')\n"


def names(graph: Graph) -> set[str]:
    return {id_ for (id_,) in graph.rows("SELECT id FROM node WHERE source IS NOT NULL AND kind = 'symbol'")}


@pytest.mark.parametrize(
    "prefix, path, packages, expected",
    [
        ("jax", "_src/lax/lax.py", set(), ("jax._src.lax.lax", False)),
        ("jax.experimental.pallas", "__init__.py", {""}, ("jax.experimental.pallas", True)),
        ("", "flax/nnx/__init__.py", {"flax", "flax/nnx"}, ("flax.nnx", True)),
        (None, "src/pkg/sub/m.py", {"src/pkg", "src/pkg/sub"}, ("pkg.sub.m", False)),
        (None, "src/pkg/ns/m.py", {"src/pkg"}, ("pkg.ns.m", False)),
        (None, "scripts/train.py", {"src/pkg"}, ("scripts.train", False)),
        (None, "train.py", set(), ("train", False)),
    ],
)
def test_module_names(tmp_path: Path, prefix: str | None, path: str, packages: set[str], expected: tuple[str, bool]) -> None:
    assert module_name(Source("s", "s", tmp_path, "", prefix), path, packages) == expected


@pytest.mark.parametrize(
    "rest, expected",
    [
        ("https://host/org/repo.git@v1.2", ("https://host/org/repo.git", "v1.2")),
        ("https://user@host/org/repo", ("https://user@host/org/repo", "")),
        ("git@host:org/repo.git", ("git@host:org/repo.git", "")),
        ("git@host:org/repo.git@main", ("git@host:org/repo.git", "main")),
        ("/srv/repo@feature/x", ("/srv/repo", "feature/x")),
        ("/srv/repo", ("/srv/repo", "")),
    ],
)
def test_git_locators(rest: str, expected: tuple[str, str]) -> None:
    assert split_revision(rest) == expected


@pytest.mark.parametrize(
    "filename, name, version", [("a_b-1.0-py3-none-any.whl", "a-b", "1.0"), ("a-b-2.1.tar.gz", "a-b", "2.1"), ("a_b-2.1.zip", "a-b", "2.1")]
)
def test_versions_in_file_names(filename: str, name: str, version: str) -> None:
    assert version_in(filename, name) == version


@pytest.mark.parametrize(
    "locator, message",
    [
        ("pkg:no-such-package-here", "no installed package"),
        ("pkg:json/nothing", "has no nothing"),
        ("no/such/folder", "no such folder"),
        ("/dev/null", "neither a folder nor an ordinary file"),
        ("/etc/hostname", "no reader for a file without suffix"),
        ("pypi:bad name", "not a package and version"),
        ("git:-u@x", "not a repository"),
        ("pkg:math", "no Python source|no installed package"),
    ],
)
def test_a_wrong_locator_says_so(tmp_path: Path, locator: str, message: str) -> None:
    with graph_in(tmp_path) as graph, pytest.raises(KgError, match=message):
        ingest(graph, [locator])


def test_nothing_found_is_an_error_and_keeps_the_old_graph(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", {"m.py": "def f(): pass\n"})
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, [str(tree)])
        before = contents(graph)
        (tree / "m.py").unlink()
        (tree / "README.txt").write_text("nothing here")
        with pytest.raises(IngestError, match="no Python"):
            ingest(graph, [str(tree)])
        assert contents(graph) == before


def test_bad_files_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    tree = write_tree(
        tmp_path / "tree",
        {"good.py": "def f(): pass\n", "broken.py": "def (((\n" * 30, "partly.py": "def g(): pass\n" * 20 + "x = = 1\n", "a.py": "", "a/__init__.py": ""},
    )
    (tree / "latin.py").write_bytes("# -*- coding: latin-1 -*-\nname = 'é'\ndef lat(): pass\n".encode("latin-1"))
    (tree / "wrong.py").write_bytes(b"x = '\xff'\n")
    (tree / "nul.py").write_bytes(b"x = 1\x00\n")
    (tree / "generated.py").write_bytes(b"x = 1\n" * 1_800_000)
    (tree / "deep.py").write_text("x = " + "(" * 5000 + ")" * 5000)
    (tree / "loop").symlink_to(tree, target_is_directory=True)
    (tree / "gone.py").symlink_to(tree / "nowhere.py")
    with graph_in(tmp_path / "ws") as graph:
        (report,) = ingest(graph, [str(tree)])
        problems = {problem.path: problem.reason for problem in report.problems}
        assert {"sym:good.f", "sym:latin.lat", "sym:partly.g", "sym:a"} <= names(graph)
        assert "doesn't parse (line 1)" in problems["broken.py"]
        assert "line 21" in problems["partly.py"]
        assert "not UTF-8" in problems["wrong.py"]
        assert "NUL" in problems["nul.py"]
        assert "10.8 MB" in problems["generated.py"]
        assert "a link to a folder" in problems["loop"]
        assert "already a/__init__.py" in problems["a.py"]
        assert report.skipped == len(problems) - 1  # partly.py was read
        (again,) = ingest(graph, [str(tree)])
        assert (again.parsed, again.skipped, again.problems) == (0, report.skipped, report.problems)


def test_an_interrupted_ingest_leaves_the_old_graph(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", {"m.py": "def f(): return g()\ndef g(): pass\n"})
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, [str(tree)])
        before = contents(graph)
        write_tree(tree, {"m.py": "def h(): pass\n", "n.py": "import m\n"})

        def interrupt(step: str, done: int, total: int) -> None:
            if step.startswith("resolving"):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            ingest(graph, [str(tree)], progress=interrupt)
        assert contents(graph) == before
        search_is_whole(graph)
        ingest(graph, [str(tree)])
        assert "sym:m.h" in names(graph)


FULL_DISK = """
import kgagent.ingest.parse as parse
from kgagent.errors import StorageError
from kgagent.ingest.worker import main

def full(task):
    raise StorageError("can't store an artefact: No space left on device", where=task.path, hint="free disk space")

parse.parse = full
main()
"""


@pytest.mark.parametrize("script, error, message", [(FULL_DISK, StorageError, "No space left"), ("raise SystemExit(3)", IngestError, "a parsing process died")])
def test_what_befalls_a_parsing_process_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, error: type[KgError], message: str) -> None:
    tree = write_tree(tmp_path / "tree", {f"m{i}.py": "def f(): pass\n" for i in range(4)})
    environment = {**os.environ, "PYTHONPATH": str(Path(pool.__file__).parents[2])}

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    monkeypatch.setattr(pool, "ALONE_BYTES", 0)
    monkeypatch.setattr(pool, "_start", start)
    with graph_in(tmp_path / "ws") as graph:
        with pytest.raises(error, match=message):
            ingest(graph, [str(tree)])
        assert names(graph) == set()


def test_a_second_ingest_waits_or_says_so(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", {"m.py": "def f(): pass\n"})
    with graph_in(tmp_path / "ws") as first, open_graph(first.workspace, write=True, busy_s=0.1) as second:
        with first.transaction(), pytest.raises(Busy, match="another kgagent"):
            ingest(second, [str(tree)])
        ingest(second, [str(tree)])


def test_moved_and_deleted_files_are_noticed(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", {"a.py": "def f(): pass\n", "b.py": "def g(): pass\n", "c.py": "from a import f\nf()\n"})
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, [str(tree)])
        assert not list_sources(graph)[0].stale
        (tree / "a.py").rename(tree / "moved.py")
        (tree / "b.py").unlink()
        assert "2 files changed" in list_sources(graph)[0].stale
        (report,) = ingest(graph, [str(tree)])
        assert (report.moved, report.deleted, report.added, report.resolved_again) == (1, 2, 1, 1)
        assert names(graph) == {"sym:c", "sym:moved", "sym:moved.f"}
        assert ("c", "calls", "a.f", "exact") in edges(graph, "calls")
        os.utime(tree / "c.py")
        (touched,) = ingest(graph, [str(tree)])
        assert touched.parsed == 0


def make_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        info = f"{name}-{version}.dist-info"
        texts = {
            **files,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
        }
        for path, text in {**texts, f"{info}/RECORD": ""}.items():
            wheel.writestr(path, text)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all pip may look at."""
    folder = tmp_path / "index"
    make_wheel(folder, "small", "1.5", {"small/__init__.py": "raise SystemExit('imported')\ndef f(): pass\n"})
    with tarfile.open(folder / "tiny-2.0.tar.gz", "w:gz") as sdist:
        for path, text in {
            "tiny-2.0/setup.py": SETUP,
            "tiny-2.0/PKG-INFO": "Metadata-Version: 2.1\nName: tiny\nVersion: 2.0\n",
            "tiny-2.0/tiny/__init__.py": "def t(): pass\n",
        }.items():
            info = tarfile.TarInfo(path)
            info.size = len(text)
            sdist.addfile(info, io.BytesIO(text.encode()))
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    return folder


def test_a_wheel_and_an_sdist_are_read_and_never_run(tmp_path: Path, index: Path) -> None:
    ran = Path("/tmp/kgagent-sdist-was-run")
    ran.unlink(missing_ok=True)
    with graph_in(tmp_path / "ws") as graph:
        reports = ingest(graph, ["pypi:small==1.5", "pypi:tiny"])
        assert [(r.name, r.revision) for r in reports] == [("small", "1.5"), ("tiny", "2.0")]
        assert {"sym:small.f", "sym:tiny.t"} <= names(graph)
        assert all(not row.stale for row in list_sources(graph))
        with pytest.raises(IngestError, match="pip can't download"):
            ingest(graph, ["pypi:absent-package"])
    assert not ran.exists()


def test_archives_stay_in_their_folder(tmp_path: Path) -> None:
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as tar:
        for path in ("../out.py", "/abs.py", "ok/in.py", "ok/image.png"):
            info = tarfile.TarInfo(path)
            info.size = 5
            tar.addfile(info, io.BytesIO(b"x = 1"))
        link = tarfile.TarInfo("ok/link.py")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    unpack(archive, tmp_path / "tree")
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.py")) == ["tree/ok/in.py"]


def test_members_keep_their_times(tmp_path: Path) -> None:
    packed = {"a.py": 1_500_000_000, "b.py": 2**40, "c.py": -5}
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for path, seconds in packed.items():
            info = tarfile.TarInfo(path)
            info.mtime = seconds
            tar.addfile(info)
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as wheel:
        wheel.writestr(zipfile.ZipInfo("a.py", (2017, 7, 14, 2, 40, 0)), "")
        wheel.writestr(zipfile.ZipInfo("b.py", (2017, 0, 0, 0, 0, 0)), "")
    times = {
        p.relative_to(tmp_path).as_posix(): p.stat().st_mtime for kind in ("tar", "whl") for p in unpack(tmp_path / f"x.{kind}", tmp_path / kind).iterdir()
    }
    assert times == {"tar/a.py": 1_500_000_000, "tar/b.py": 0, "tar/c.py": 0, "whl/a.py": 1_500_000_000, "whl/b.py": 0}


def test_times_survive_a_rebuild(tmp_path: Path, index: Path) -> None:
    tree = write_tree(tmp_path / "tree", {"m.py": "def f(): pass\n"})
    times = "SELECT path, mtime_ns FROM file ORDER BY path"
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, ["pypi:small==1.5", str(tree)])
        os.utime(tree / "m.py", ns=(5, 10**18))
        ingest(graph, [str(tree)])  # the same bytes, a new time
        before = graph.rows(times)
        assert dict(before)["m.py"] == 10**18
        (tmp_path / "ws" / "graph.db").unlink()
    with graph_in(tmp_path / "ws") as graph:
        restore(graph)
        assert graph.rows(times) == before
        assert [row.stale for row in list_sources(graph)] == ["", ""]


def test_a_git_revision_is_pinned_and_the_work_tree_untouched(tmp_path: Path) -> None:
    repository = write_tree(tmp_path / "repo", {"lib/__init__.py": "def old(): pass\n"})

    def run(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(repository), *arguments], check=True, capture_output=True)

    run("init", "-q")
    run("add", "-A")
    run("commit", "-qm", "first")
    run("tag", "v1")
    write_tree(repository, {"lib/__init__.py": "def new(): pass\n"})
    run("commit", "-qam", "second")
    write_tree(repository, {"lib/__init__.py": "def uncommitted(): pass\n"})
    with graph_in(tmp_path / "ws") as graph:
        (report,) = ingest(graph, [f"git:{repository}@v1"])
        assert names(graph) == {"sym:lib", "sym:lib.old"}
        assert len(report.revision) == 40
        (head,) = ingest(graph, [f"git:file://{repository}"])
        assert "sym:lib.new~repo-2" in names(graph)
        assert head.name == "repo-2"
        with pytest.raises(IngestError, match="git"):
            ingest(graph, [f"git:{repository}@nowhere"])
    assert (repository / "lib/__init__.py").read_text() == "def uncommitted(): pass\n"


def test_forget_gives_names_back(tmp_path: Path) -> None:
    first = write_tree(tmp_path / "first", {"lib.py": "def f(): pass\n", "only.py": "def o(): pass\n"})
    second = write_tree(tmp_path / "second", {"lib.py": "def f(): return g()\ndef g(): pass\n"})
    user = write_tree(tmp_path / "user", {"use.py": "import lib, only\ndef go(): return lib.f(), only.o()\n"})
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, [str(first), str(second), str(user)])
        assert ("use.go", "calls", "lib.f", "exact") in edges(graph, "calls")
        assert ("lib.f~second", "calls", "lib.g~second", "exact") in edges(graph, "calls")
        forget(graph, "first")
        left = contents(graph)
        search_is_whole(graph)
        with pytest.raises(UnknownThing, match="no source"):
            forget(graph, "first")
    with graph_in(tmp_path / "fresh") as graph:
        ingest(graph, [str(second), str(user)])
        fresh = contents(graph)
    for table in ("node", "edge", "module", "depends"):
        assert left[table] == fresh[table], table


@pytest.mark.parametrize("files", [2, 30])
def test_rules_set_aside_for_speed_are_back_afterwards(tmp_path: Path, files: int) -> None:
    tree = write_tree(tmp_path / "tree", {f"m{i}.py": f"def f{i}(): pass\n" for i in range(files)})
    triggers = "SELECT name, sql FROM sqlite_master WHERE type IN ('trigger', 'index') ORDER BY name"
    with graph_in(tmp_path / "ws") as graph:
        before = graph.rows(triggers)
        ingest(graph, [str(tree)])
        assert graph.rows(triggers) == before
