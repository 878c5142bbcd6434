"""Killed at every step, interrupted, out of disk: nothing is lost, nothing happens twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgagent.errors import StorageError
from kgagent.executor import ensure_reference, resume, verify
from kgagent.executor.branches import repository
from kgagent.executor.journal import Journal
from kgagent.executor.workers import scratch_folder
from kgagent.graph import open_graph
from kgagent.workspace import Workspace, create_workspace
from tests.executor.toy import impatient, write_toy

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "tests.executor.interrupted"]
STEPS = ("plan", "commit", "trace", "seeds", "check", "noise", "pair-0", "judge", "receipts", "close")


def drive(home: Path, step: str, when: str, impl: str = "dot") -> int:
    return subprocess.run([*PROGRAM, str(home), impl, step, when], cwd=ROOT, capture_output=True, timeout=120, check=False).returncode


def branches(workspace: Workspace) -> list[str]:
    told = subprocess.run(["git", "for-each-ref", "--format=%(refname:short)"], cwd=repository(workspace), capture_output=True, text=True, check=True)
    return told.stdout.split()


@pytest.mark.slow
def test_killed_at_every_step_before_and_after_its_result_is_stored(quick: Workspace) -> None:
    for step in STEPS:
        for when in ("before", "after"):
            assert drive(quick.root, step, when) == -signal.SIGKILL, f"was not killed {when} {step}"
    with open_graph(quick, write=True) as graph:
        assert resume(graph) == ()
        rows = graph.rows("SELECT n.id, e.filed, v.verdict FROM experiment e JOIN node n ON n.key = e.key LEFT JOIN verdict v ON v.experiment = e.key")
        assert [row[:2] for row in rows] == [("exp:toy/0001", 1), ("exp:toy/0002", 1)]
        assert rows[1][2] in ("supported", "inconclusive")  # one pair may not decide
        assert graph.value("SELECT count(*) FROM hypothesis") == 1
        assert graph.value("SELECT count(*) FROM comparison") == 1
    with Journal(quick) as journal:
        attempts = journal.steps("exp:toy/0002")
    # once to be killed before its result was stored, once whole: never again after that
    assert attempts == {step: 2 for step in STEPS if step != "close"}
    assert sorted(branches(quick)) == ["kg/toy/0001", "kg/toy/0002"]
    assert verify(quick).problems == ()


def test_ctrl_c_leaves_nothing_running_and_can_be_gone_on_from(toy: Workspace) -> None:
    impatient(toy)  # gone on from, the candidate hangs again
    child = subprocess.Popen([*PROGRAM, str(toy.root), "hangs", "never", "after"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("tracing"):
            break
    time.sleep(1.0)
    child.send_signal(signal.SIGINT)
    _, told = child.communicate(timeout=20)
    assert child.returncode != 0 and "KeyboardInterrupt" in told
    running = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.parent.name != str(os.getpid()) and p.exists()]
    assert not any(str(toy.root).encode() in command for command in running)
    with open_graph(toy, write=True) as graph:
        (report,) = resume(graph)
    assert (report.outcome, report.verdict) == ("timeout", "invalid")


def test_an_edit_in_between_changes_nothing_that_was_begun(quick: Workspace) -> None:
    assert drive(quick.root, "seeds", "after") == -signal.SIGKILL
    candidate = quick.lanes / "toy" / "candidate.py"
    candidate.write_text("def candidate(x, w, *, impl):\n    raise SystemExit\n")
    with open_graph(quick, write=True) as graph:
        (report,) = resume(graph)
    assert report.outcome == "completed" and report.verdict in ("supported", "inconclusive"), report.reason


def test_a_run_is_not_gone_on_with_elsewhere(quick: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number of that machine must not be filed under the scope of this one."""
    assert drive(quick.root, "seeds", "after") == -signal.SIGKILL
    monkeypatch.setattr("kgagent.executor.memory.cores", lambda: 96)
    with open_graph(quick, write=True) as graph:
        (report,) = resume(graph)
        assert resume(graph) == ()
    assert (report.outcome, report.verdict, report.speedup) == ("cancelled", "invalid", None)
    assert "96 cores" in report.reason
    monkeypatch.undo()
    assert verify(quick).problems == ()


def test_scratch_of_killed_processes_goes(workspace: Workspace) -> None:
    workspace.scratch.mkdir(exist_ok=True)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    old, recent, mine = (workspace.scratch / name for name in (f"run-{dead.pid}-old", f"run-{dead.pid}-recent", f"run-{os.getpid()}-mine"))
    for folder in (old, recent, mine):
        folder.mkdir()
        (folder / "export").write_bytes(b"x")
    for folder in (old, mine):
        os.utime(folder, (time.time() - 7200, time.time() - 7200))
    with scratch_folder(workspace):
        assert not old.exists() and recent.exists() and mine.exists()


def test_a_blocked_folder_is_one_error_and_then_goes_on(toy: Workspace) -> None:
    assert drive(toy.root, "judge", "after", "raises") == -signal.SIGKILL
    blocker = toy.runs / "toy-0002"
    blocker.write_text("in the way")
    with open_graph(toy, write=True) as graph:
        with pytest.raises(StorageError, match="can't write receipts"):
            resume(graph)
        assert graph.value("SELECT count(*) FROM experiment") == 1
        blocker.unlink()
        (report,) = resume(graph)
    assert report.outcome == "crashed"
    assert verify(toy).problems == ()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this machine doesn't let tests mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def test_full_disk_is_told_and_then_goes_on(small_disk: Path) -> None:
    workspace = create_workspace(small_disk / "w")
    lane = write_toy(workspace)
    with pytest.raises(StorageError) as caught, open_graph(workspace, write=True) as graph:
        ensure_reference(graph, lane)
    assert caught.value.hint
    subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
    with open_graph(workspace, write=True) as graph:
        assert ensure_reference(graph, lane) == "exp:toy/0001"
    assert verify(workspace).problems == ()


def test_read_only_disk_is_told(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
    workspace = create_workspace(small_disk / "w")
    lane = write_toy(workspace)
    with open_graph(workspace, write=True) as graph:
        pass
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StorageError), open_graph(workspace, write=True) as graph:
        ensure_reference(graph, lane)
