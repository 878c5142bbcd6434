"""Start a trusted worker under limits and take its result; a failing program becomes an outcome, a failing machine an error."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgagent.errors import StorageError, Unavailable
from kgagent.lanes import Lane
from kgagent.lanes.environment import child_environment, python_module
from kgagent.lanes.trace import OUTCOMES
from kgagent.objects import Objects
from kgagent.process import Finished, run_limited
from kgagent.workspace import Workspace

MESSAGE_CHARS = 600
LEFT_BEHIND_S = 3600.0  # a scratch folder of a dead process this old is nobody's; process numbers of another machine look dead too


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """What a worker left; `outcome` is 'completed' or how the program failed, and then `message` says so in one line."""

    outcome: str
    message: str
    wall_s: float
    files: dict[str, bytes]


def run_worker(workspace: Workspace, lane: Lane, job: Mapping[str, Any], programs: Mapping[str, str], results: tuple[str, ...]) -> WorkerResult:
    """Run one job; `programs` are file name -> artefact SHA-256, laid into its folder, and `results` are the files to bring back."""
    objects = Objects(workspace.objects)
    with scratch_folder(workspace) as folder:
        for name in lane.immutable:
            target = folder / "lane" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(lane.files[name])
        for name, sha in programs.items():
            (folder / name).write_bytes(objects.get(sha))
        (folder / "out").mkdir()
        (folder / "job.json").write_text(json.dumps({**job, "lane": str(folder / "lane"), "out": str(folder / "out")}))
        budgets = lane.budgets
        done = run_limited(
            python_module("kgagent.executor.worker", str(folder / "job.json")),
            cwd=folder,
            env=child_environment(folder),
            wall_s=budgets.run_s,
            memory_mb=budgets.memory_mb,
            output_kb=budgets.output_kb,
        )
        outcome, message = _outcome(done, folder / "out" / "failure.json", lane)
        if outcome != "completed":
            return WorkerResult(outcome, message, done.wall_s, {})
        return WorkerResult("completed", "", done.wall_s, {name: (folder / "out" / name).read_bytes() for name in results})


@contextmanager
def scratch_folder(workspace: Workspace) -> Iterator[Path]:
    """A folder of its own below .kgagent, gone afterwards; those of killed processes go now."""
    try:
        workspace.scratch.mkdir(parents=True, exist_ok=True)
        _sweep(workspace.scratch)
        with tempfile.TemporaryDirectory(prefix=f"run-{os.getpid()}-", dir=workspace.scratch, ignore_cleanup_errors=True) as name:
            yield Path(name).resolve()
    except OSError as error:
        what = f"can't use the scratch folder: {error.strerror or error}"
        raise StorageError(what, where=str(workspace.scratch), hint="free disk space, then kgagent resume") from error


def _sweep(scratch: Path) -> None:
    for folder in scratch.glob("run-*-*"):
        owner = folder.name.split("-")[1]
        try:
            if owner.isdigit() and not _alive(int(owner)) and time.time() - folder.stat().st_mtime > LEFT_BEHIND_S:
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:
            continue  # another process swept it


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _outcome(done: Finished, note: Path, lane: Lane) -> tuple[str, str]:
    if done.killed_by:
        limit = {
            "timeout": f"passed its {lane.budgets.run_s:g} s",
            "output": f"wrote more than {lane.budgets.output_kb} KiB",
            "memory": f"took more than {lane.budgets.memory_mb} MiB",
        }[done.killed_by]
        return OUTCOMES[done.killed_by], f"the program {limit} when compiled and run"
    if done.returncode == 0:
        return "completed", ""
    if done.returncode < 0:
        return "crashed", f"the program ended its process with signal {-done.returncode}"
    try:
        told = json.loads(note.read_bytes())
    except (OSError, ValueError):
        return "crashed", f"the worker ended with {done.returncode}: {' '.join(done.stderr.split())[-MESSAGE_CHARS:]}"
    kind, message = str(told["type"]), " ".join(str(told["message"]).split())[:MESSAGE_CHARS]
    if kind in ("ModuleNotFoundError", "ImportError"):
        raise Unavailable(message, hint="pip install 'kgagent[jax]'")
    if kind in ("OSError", "PermissionError", "FileNotFoundError"):
        raise StorageError(message, hint="free disk space, then kgagent resume")
    if kind == "MemoryError" or "RESOURCE_EXHAUSTED" in message or "Out of memory" in message:
        return "out_of_memory", message
    return "crashed", f"{kind}: {message}"
