"""A branch and a commit per experiment, written with plumbing: nobody's index, tree or current branch is touched.

A workspace that is itself a git repository gets the branches; elsewhere they go to a bare repository of kgagent's own.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kgagent.errors import StorageError, Unavailable
from kgagent.workspace import Workspace

OWN_REPOSITORY = "experiments.git"
NOBODY = {"GIT_AUTHOR_NAME": "kgagent", "GIT_AUTHOR_EMAIL": "kgagent@localhost", "GIT_COMMITTER_NAME": "kgagent", "GIT_COMMITTER_EMAIL": "kgagent@localhost"}


def repository(workspace: Workspace) -> Path:
    """The git directory that holds experiment branches; made where there is none."""
    if (workspace.root / ".git").exists():
        return Path(_git(workspace.root, None, "rev-parse", "--absolute-git-dir"))
    own = workspace.raw / OWN_REPOSITORY
    if not (own / "HEAD").is_file():
        own.parent.mkdir(parents=True, exist_ok=True)
        _git(workspace.raw, None, "init", "--quiet", "--bare", str(own))
    return own


def commit_experiment(workspace: Workspace, branch: str, files: Mapping[str, bytes], message: str, *, parent: str, date: str) -> str:
    """Commit `files` over the parent's tree and point the branch there; the same call gives the same commit again."""
    folder = repository(workspace)
    if not parent:
        parent = _head(folder)
    with tempfile.TemporaryDirectory(prefix="index-") as name:
        extra = {"GIT_INDEX_FILE": str(Path(name) / "index"), "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date, **NOBODY}
        if parent:
            _git(folder, extra, "read-tree", parent)
        entries = "".join(f"100644 {_git(folder, extra, 'hash-object', '-w', '--stdin', stdin=data)}\t{path}\n" for path, data in sorted(files.items()))
        _git(folder, extra, "update-index", "--add", "--index-info", stdin=entries.encode())
        tree = _git(folder, extra, "write-tree")
        commit = _git(folder, extra, "commit-tree", tree, *(["-p", parent] if parent else []), stdin=message.encode())
    _git(folder, None, "update-ref", f"refs/heads/{branch}", commit)
    return commit


def _head(folder: Path) -> str:
    """The commit experiments start from; '' in a repository without one."""
    try:
        return _git(folder, None, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except StorageError:
        return ""


def _git(folder: Path, extra: Mapping[str, str] | None, *arguments: str, stdin: bytes = b"") -> str:
    """Run git on a repository with hooks off and without the caller's own GIT_ variables."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | dict(extra or {})
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "commit.gpgSign=false", *arguments]
    try:
        done = subprocess.run(command, cwd=folder, env=env, input=stdin, capture_output=True, check=False, timeout=60)
    except FileNotFoundError as error:
        raise Unavailable("experiments are kept in git, and there is no git here", hint="install git") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StorageError(f"git {arguments[0]} did not finish: {error}", where=str(folder)) from error
    if done.returncode != 0:
        message = " ".join(done.stderr.decode("utf-8", "replace").split()) or "no message"
        raise StorageError(f"git {arguments[0]} failed: {message}", where=str(folder), hint="free disk space or repair the repository, then kgagent resume")
    return done.stdout.decode("utf-8", "replace").strip()
