"""Experiments go to branches; whoever works in the repository doesn't notice."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kgagent.executor.branches import commit_experiment, repository
from kgagent.workspace import Workspace, create_workspace

DATE = "2026-01-02T03:04:05.000006+00:00"


def git(folder: Path, *arguments: str) -> str:
    env = {**os.environ, "GIT_AUTHOR_NAME": "p", "GIT_AUTHOR_EMAIL": "p@x", "GIT_COMMITTER_NAME": "p", "GIT_COMMITTER_EMAIL": "p@x"}
    return subprocess.run(["git", *arguments], cwd=folder, env=env, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return create_workspace(tmp_path / "w")


def test_a_workspace_without_git_gets_a_repository_of_kgagents_own(workspace: Workspace) -> None:
    first = commit_experiment(workspace, "kg/a/0001", {"lanes/a/x.py": b"1\n"}, "exp a/0001\n\nexp: a/0001\n", parent="", date=DATE)
    again = commit_experiment(workspace, "kg/a/0001", {"lanes/a/x.py": b"1\n"}, "exp a/0001\n\nexp: a/0001\n", parent="", date=DATE)
    second = commit_experiment(workspace, "kg/a/0002", {"lanes/a/x.py": b"2\n"}, "exp a/0002\n", parent=first, date=DATE)
    assert first == again != second
    home = repository(workspace)
    assert home == workspace.raw / "experiments.git"
    assert git(home, "log", "--format=%H", "kg/a/0002").split() == [second, first]
    assert git(home, "show", "kg/a/0002:lanes/a/x.py") == "2"
    assert git(home, "log", "-1", "--format=%(trailers:key=exp,valueonly)", "kg/a/0001") == "a/0001"
    assert not (workspace.root / ".git").exists()


def test_a_persons_repository_is_left_as_it_is(workspace: Workspace) -> None:
    root = workspace.root
    git(root, "init", "--quiet", "--initial-branch=mine")
    (root / "kept.txt").write_text("committed\n")
    git(root, "add", "kept.txt")
    git(root, "commit", "--quiet", "-m", "mine")
    (root / "kept.txt").write_text("edited\n")
    (root / "staged.txt").write_text("staged\n")
    git(root, "add", "staged.txt")
    hook = root / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch hook-ran\n")
    hook.chmod(0o755)
    before = git(root, "status", "--porcelain"), git(root, "symbolic-ref", "HEAD"), git(root, "rev-parse", "mine"), (root / ".git" / "index").read_bytes()
    commit = commit_experiment(workspace, "kg/a/0001", {"lanes/a/x.py": b"1\n"}, "exp a/0001\n", parent="", date=DATE)
    after = git(root, "status", "--porcelain"), git(root, "symbolic-ref", "HEAD"), git(root, "rev-parse", "mine"), (root / ".git" / "index").read_bytes()
    assert before == after
    assert not (root / "hook-ran").exists()
    assert git(root, "rev-parse", "kg/a/0001^") == git(root, "rev-parse", "mine")
    assert git(root, "show", f"{commit}:kept.txt") == "committed"


def test_a_git_dir_of_the_callers_is_not_used(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    commit_experiment(workspace, "kg/a/0001", {"x": b"1"}, "exp\n", parent="", date=DATE)
    monkeypatch.delenv("GIT_DIR")
    assert git(other, "for-each-ref") == ""
