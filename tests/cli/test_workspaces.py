"""A workspace in an odd place or state: what can be done is done, what can't is told before anything is begun."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgagent.setup import initialise
from kgagent.workspace import Workspace

MODULE = """import jax.numpy as jnp

def attend(scores):
    m_next = jnp.maximum(scores, 0)
    return jnp.exp(scores - m_next)
"""


def kgagent(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "kgagent", *arguments], capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a space and letters beyond ASCII in its path, and one small source."""
    root = tmp_path_factory.mktemp("odd") / "wörk space"
    initialise(root)
    source = root.parent / "source"
    source.mkdir()
    (source / "model.py").write_text(MODULE)
    done = kgagent("-w", str(root), "ingest", str(source))
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture
def own(home: Path, tmp_path: Path) -> Workspace:
    shutil.copytree(home, tmp_path / "w")
    return Workspace(tmp_path / "w")


def test_concepts_are_there_from_the_start(tmp_path: Path) -> None:
    initialise(tmp_path / "w")
    assert "concept:tiling" in kgagent("-w", str(tmp_path / "w"), "find", "tiling").stdout
    told = kgagent("-w", str(tmp_path / "w"), "why", "why is zork fast")
    assert told.returncode == 1 and "kgagent ingest" in told.stdout


def test_an_odd_path_and_a_link_to_it(home: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(home)
    for place in (home, tmp_path / "link"):
        assert "attend" in kgagent("-w", str(place), "find", "attend").stdout
        assert kgagent("-w", str(place), "verify").returncode == 0


@pytest.mark.parametrize("state", ["gone", "empty"])
def test_a_lost_graph_is_told_and_not_answered_from(own: Workspace, state: str) -> None:
    for file in own.root.glob("graph.db*"):
        file.unlink()
    if state == "empty":
        own.graph_db.write_bytes(b"")
    for command in (["find", "attend"], ["plan", "attention"], ["sources"], ["wiki"], ["why", "why is attend fast"]):
        done = kgagent("-w", str(own.root), *command)
        assert (done.returncode, done.stdout) == (1, "") and "kgagent rebuild" in done.stderr, command
    assert kgagent("-w", str(own.root), "verify").returncode == 0
    doctor = kgagent("-w", str(own.root), "doctor").stdout
    assert "kgagent rebuild" in doctor
    assert kgagent("-w", str(own.root), "rebuild").returncode == 0
    assert "attend" in kgagent("-w", str(own.root), "find", "attend").stdout


@pytest.fixture
def frozen(home: Path, tmp_path: Path) -> Iterator[Path]:
    """The workspace on a disk that can't be written."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if shutil.which("mount") is None or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("this machine doesn't let tests mount a disk")
    shutil.copytree(home, disk / "w")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    yield disk / "w"
    subprocess.run(["umount", "-l", str(disk)], check=False)


def test_reading_works_where_writing_does_not(frozen: Path) -> None:
    for command in (["find", "attend"], ["show", "concept:tiling"], ["neighbors", "concept:tiling"], ["sources"], ["verify"]):
        done = kgagent("-w", str(frozen), *command)
        assert done.returncode == 0, (command, done.stderr)
    for command in (["ingest", "."], ["plan", "attention"], ["wiki"]):
        done = kgagent("-w", str(frozen), *command)
        assert done.returncode == 1 and "next:" in done.stderr and "Traceback" not in done.stderr, (command, done.stderr)


@pytest.mark.parametrize(
    ("command", "message", "following"),
    [
        (["run", "attention", "hyp:attention/none"], "no hypothesis", "kgagent plan attention"),
        (["run", "attention", "concept:tiling"], "is not a hypothesis", "kgagent plan attention"),
        (["run", "attention", "--set", "blok=1"], "no knob 'blok'", "block_q"),
        (["run", "attention", "--set", "block_q=7"], "block_q=7", "128"),
        (["ingest", ""], "an empty source", "pkg:NAME"),
    ],
)
def test_a_wrong_request_is_told_before_anything_is_run(own: Workspace, command: list[str], message: str, following: str) -> None:
    started = time.perf_counter()
    done = kgagent("-w", str(own.root), *command)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr and following in done.stderr
    assert time.perf_counter() - started < 10  # the reference alone would take longer
    assert not any(own.runs.iterdir())


def test_an_edited_page_reaches_the_code_through_wiki_alone(own: Workspace) -> None:
    """Reading the page without running its detectors would leave it unlinked for good: nothing looks new to the next ingest."""
    page = own.concepts / "tiling.md"
    text = page.read_text()
    page.write_text(text.replace("detectors:\n", 'detectors:\n  - "source of-test: m_next = jnp"\n', 1))
    assert page.read_text() != text
    assert kgagent("-w", str(own.root), "wiki").returncode == 0
    assert "attend" in kgagent("-w", str(own.root), "neighbors", "concept:tiling", "--type", "mentions").stdout


def test_a_folder_named_like_a_page_is_none(own: Workspace) -> None:
    (own.concepts / "folder.md").mkdir()
    done = kgagent("-w", str(own.root), "wiki")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("text", "told"), [("lane = 3\n", "should be a lane's name"), ("lane = [\n", "doesn't parse"), ("lane = '\xff'\n", "UTF-8")])
def test_a_bad_kgagent_toml_names_itself(own: Workspace, text: str, told: str) -> None:
    (own.root / "kgagent.toml").write_bytes(text.encode("latin-1"))
    done = kgagent("-w", str(own.root), "why", "why is tiling fast")
    assert done.returncode == 2 and told in done.stderr and "kgagent.toml" in done.stderr


def test_no_home_and_no_path(own: Workspace) -> None:
    command = [sys.executable, "-m", "kgagent", "-w", str(own.root), "find", "attend"]
    done = subprocess.run(command, env={}, capture_output=True, text=True, timeout=60, cwd=own.root)
    assert done.returncode == 0, done.stderr
    assert os.environ.get("PATH")
