"""What this machine can do, found without importing anything heavy or touching a chip."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from kgagent.errors import KgError
from kgagent.graph import graph_is_lost, open_graph
from kgagent.workspace import find_workspace

# Package, what it is for, how to get it.
PACKAGES = (
    ("jax", "tracing and CPU runs", 'pip install "kgagent[jax]"'),
    ("libtpu", "the TPU compiler, with or without a TPU", 'pip install "kgagent[tpu]"'),
    ("flax", "model lanes", 'pip install "kgagent[jax]"'),
    ("flatbuffers", "handing StableHLO over (jax.export)", 'pip install "kgagent[jax]"'),
    ("tokamax", "a kernel library worth ingesting", "pip install tokamax"),
    ("xprof", "reading TPU profiles", "pip install xprof"),
)
KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report; `get` says how to obtain what is missing."""

    name: str
    ok: bool
    found: str
    get: str = ""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """All checks; nothing here is required but Python, SQLite and git."""

    checks: tuple[Check, ...]


def examine(explicit: Path | None = None) -> DoctorReport:
    """Look at Python, SQLite, git, packages, TPU devices, keys and the workspace."""
    import sqlite3

    git = shutil.which("git") is not None
    checks = [
        Check(
            "python", (3, 11) <= sys.version_info[:2] <= (3, 13), sys.version.split()[0], "" if sys.version_info[:2] <= (3, 13) else "use Python 3.11 to 3.13"
        ),
        Check("sqlite", sqlite3.sqlite_version_info >= (3, 37), f"{sqlite3.sqlite_version} (STRICT tables need 3.37)"),
        Check("git", git, "branches and commits of experiments" if git else "not on PATH (branches and commits of experiments)", "" if git else "install git"),
        Check("machine", True, f"{os.cpu_count()} cores, {_memory_gib():.0f} GiB memory, {shutil.disk_usage(Path.cwd()).free / 2**30:.0f} GiB disk free"),
    ]
    for package, use, get in PACKAGES:
        version = _version(package)
        checks.append(Check(package, version is not None, f"{version} ({use})" if version else f"not installed ({use})", "" if version else get))
    chips = sorted(str(p) for pattern in ("/dev/accel*", "/dev/vfio/[0-9]*") for p in Path("/").glob(pattern[1:]))
    checks.append(
        Check(
            "tpu",
            bool(chips),
            f"{len(chips)} devices" if chips else "none here: CPU runs are labelled cpu, TPU answers come from the compiler, labelled predicted",
        )
    )
    keys = [key for key in KEYS if os.environ.get(key)]
    checks.append(Check("llm keys", bool(keys), ", ".join(keys) if keys else "none: every command works without one"))
    checks.append(_workspace_check(explicit))
    return DoctorReport(tuple(checks))


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _workspace_check(explicit: Path | None) -> Check:
    try:
        workspace = find_workspace(explicit=explicit)
        if graph_is_lost(workspace):
            return Check("workspace", False, f"{workspace.root}: graph.db is gone, while raw/ holds sources or runs", "kgagent rebuild")
        with open_graph(workspace) as graph:
            nodes, edges = graph.value("SELECT count(*) FROM node"), graph.value("SELECT count(*) FROM edge")
            problems = graph.value("SELECT count(*) FROM pragma_foreign_key_check")
        return Check("workspace", problems == 0, f"{workspace.root}: {nodes:,} nodes, {edges:,} edges", "kgagent rebuild" if problems else "")
    except KgError as error:
        return Check("workspace", False, error.what, error.hint)
