"""The main job, end to end, in a fresh workspace: what `make demo` runs.

Fresh every time: an earlier demo's folder is set aside as NAME.previous, so that a run cut short never stands in the way.
"""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kgagent.ask import Answer, why
from kgagent.errors import Busy, CompileError, StorageError, Unavailable, UsageError
from kgagent.evidence.flame import flame_of
from kgagent.executor import Preflight, VerifyReport, ensure_reference, preflight, verify
from kgagent.graph import Graph, open_graph
from kgagent.lanes import Lane, load_lane
from kgagent.learn import learn
from kgagent.planner import LoopReport, loop
from kgagent.setup import initialise
from kgagent.wiki import render
from kgagent.workspace import MARKER, Workspace, write_atomic

Progress = Callable[[str, int, int], None]

LANE = "attention"
SOURCES = ("pkg:tokamax", "pkg:jax/experimental/pallas")
TOPOLOGY = "v6e:2x2"
PREFLIGHTED = {"impl": "splash"}
QUESTION = "why is splash fast here"
EXPERIMENTS = 5
DEMO_FILE = "demo.txt"  # stands in .kgagent/ of a workspace that the demo made and may replace


@dataclass(frozen=True, slots=True)
class DemoReport:
    """What the demo did, and which files to open."""

    workspace: str
    seconds: float
    sources: tuple[str, ...]
    mentions: int
    loop: LoopReport
    preflight: Preflight | None
    preflight_missing: str  # why there is none
    answer: Answer
    verified: VerifyReport
    pages: int
    open: tuple[tuple[str, str], ...]  # what, path


def run_demo(root: Path, *, experiments: int = EXPERIMENTS, progress: Progress | None = None) -> DemoReport:
    """Ingest, link, optimise on the CPU, preflight for a TPU, ask, mirror; about three minutes on two cores."""
    say = progress or (lambda step, done, total: None)

    def line(text: str) -> None:
        say(text, 0, 0)

    started = time.monotonic()
    root = root.resolve()
    with _alone(root):
        _set_aside(root)
        workspace = Workspace(root)
        _mark(workspace)
        initialise(root, lane=LANE)
        with open_graph(workspace, write=True) as graph:
            learned = learn(graph, (*SOURCES, str(workspace.lanes / LANE)), progress=say)  # the lane's own lines lead to concepts too
            lane = load_lane(workspace, LANE)
            ensure_reference(graph, lane, progress=line)
            finished = loop(graph, lane, experiments=experiments, progress=line)
            compiled, missing = _preflight(graph, lane, say)
            say("asking", 0, 0)
            answer = why(graph, QUESTION)
            say("verifying receipts", 0, 0)
            verified = verify(workspace, None)
            say("writing the wiki", 0, 0)
            wiki = render(graph, draw=flame_of)
    files = [
        ("the graph as an Obsidian vault (open folder as vault)", workspace.wiki),
        ("its home page", workspace.wiki / "kgagent.md"),
        ("the graph itself", workspace.graph_db),
        ("receipts of every run", workspace.runs),
    ]
    return DemoReport(
        workspace=str(root),
        seconds=time.monotonic() - started,
        sources=tuple(f"{r.name} {r.revision}: {r.symbols:,} symbols, {r.kernels} kernels" for r in learned.sources),
        mentions=learned.mentions,
        loop=finished,
        preflight=compiled,
        preflight_missing=missing,
        answer=answer,
        verified=verified,
        pages=len(wiki.written) + wiki.unchanged,
        open=tuple((what, str(path)) for what, path in files if path.exists()),
    )


def _preflight(graph: Graph, lane: Lane, say: Progress) -> tuple[Preflight | None, str]:
    """The TPU compiler's answer, or why there is none on this machine; the rest of the demo stands either way."""
    say(f"compiling for {TOPOLOGY} (no TPU needed)", 0, 0)
    try:
        return preflight(graph, lane, PREFLIGHTED, TOPOLOGY, progress=lambda line: say(line, 0, 0)), ""
    except (Unavailable, CompileError) as error:
        return None, str(error)


def _set_aside(root: Path) -> None:
    if not root.exists() or not any(root.iterdir()):
        return
    if not (root / ".kgagent" / DEMO_FILE).exists():
        what = "a workspace" if (root / MARKER).exists() else "a folder with files in it"
        raise UsageError(f"that is {what} the demo didn't make; it is left alone", where=str(root), hint="kgagent -w NEW_FOLDER demo")
    previous = root.with_name(root.name + ".previous")
    if previous.exists() and not (previous / ".kgagent" / DEMO_FILE).exists():
        raise UsageError("the demo before this one can't be set aside: that folder is not of the demo's making", where=str(previous), hint="move it away")
    shutil.rmtree(previous, ignore_errors=True)
    root.rename(previous)


def _mark(workspace: Workspace) -> None:
    """Before all else: a demo killed in its first second must not stand in the way of the next."""
    try:
        workspace.scratch.mkdir(parents=True, exist_ok=True)
        write_atomic(workspace.scratch / DEMO_FILE, b"made by kgagent demo; the next demo sets this folder aside\n")
    except OSError as error:
        raise StorageError(f"can't write there: {error.strerror or error}", where=str(workspace.root), hint="kgagent -w OTHER_FOLDER demo") from error


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """One demo a folder at a time; the lock dies with its process."""
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        lock = open(root.parent / f".{root.name}.lock", "w")  # noqa: SIM115 - held by the with below
    except OSError as error:
        raise StorageError(f"can't write there: {error.strerror or error}", where=str(root.parent), hint="kgagent -w OTHER_FOLDER demo") from error
    with lock as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Busy("another demo is running in that folder", where=str(root), hint="wait for it, or kgagent -w OTHER_FOLDER demo") from error
        yield
