"""Trace a candidate in its own limited process and take StableHLO from it by file.

Candidate Python runs nowhere else; what it hands over is data that a trusted process reads.
"""

from __future__ import annotations

import json
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kgagent.errors import CandidateError, StorageError, Unavailable
from kgagent.lanes.environment import child_environment, python_module
from kgagent.lanes.records import Lane, OpPoint, Scalar
from kgagent.process import Finished, run_limited

EXPORT_LIMIT_MB = 256
OUTCOMES = {"timeout": "timeout", "output": "flooded", "memory": "out_of_memory"}
TAIL_CHARS = 400


@dataclass(frozen=True, slots=True)
class Export:
    """One operating point's program: a serialised jax.export artefact."""

    op_point: str
    stablehlo: bytes


@dataclass(frozen=True, slots=True)
class Traced:
    """What a trace gave; `outcome` is 'completed' or how it failed, and then `message` says so in one line."""

    outcome: str  # completed, crashed, timeout, flooded, out_of_memory, refused
    message: str
    exports: tuple[Export, ...]
    wall_s: float
    function: str = "candidate"  # or reference

    def need(self) -> tuple[Export, ...]:
        """The exports, or `CandidateError`."""
        if self.outcome != "completed":
            raise CandidateError(f"{self.function} can't be traced: {self.message}", hint=f"run {self.function}.py by hand at that operating point")
        return self.exports


def trace(
    lane: Lane,
    knobs: Mapping[str, Scalar] | None,
    *,
    platform: str = "cpu",
    points: Sequence[OpPoint] | None = None,
    scratch: Path | None = None,
    device: tuple[str, int] | None = None,
) -> Traced:
    """Export `candidate(*inputs, **knobs)` for a platform at its operating points; `knobs=None` exports the lane's reference.

    `device` is (device kind, cores) of a chip that isn't here, for kernels that ask what they will run on.
    """
    points = lane.points(platform) if points is None else points
    try:
        with tempfile.TemporaryDirectory(prefix="trace-", dir=scratch) as name:
            traced = _trace(lane, knobs, platform, points, Path(name).resolve(), device)
            return replace(traced, function="reference" if knobs is None else "candidate")
    except OSError as error:
        what = f"can't use the scratch folder: {error.strerror or error}"
        raise StorageError(what, where=str(scratch or tempfile.gettempdir()), hint="free disk space, then run it again") from error


def _trace(lane: Lane, knobs: Mapping[str, Scalar] | None, platform: str, points: Sequence[OpPoint], folder: Path, device: tuple[str, int] | None) -> Traced:
    for file, data in lane.files.items():
        target = folder / "lane" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    job = {
        "lane": str(folder / "lane"),
        "shown_as": str(lane.folder),  # source lines in the HLO name the files a person can open
        "function": "reference" if knobs is None else "candidate",
        "knobs": dict(knobs or {}),
        "platform": platform,
        "points": [[point.name, point.mapping()] for point in points],
        "out": str(folder / "out"),
        "device": device,
    }
    (folder / "out").mkdir()
    (folder / "job.json").write_text(json.dumps(job))
    budgets = lane.budgets
    done = run_limited(
        python_module("kgagent.lanes.tracer", str(folder / "job.json")),
        cwd=folder,
        env=child_environment(folder),
        wall_s=budgets.trace_s,
        memory_mb=budgets.memory_mb,
        output_kb=budgets.output_kb,
        file_mb=EXPORT_LIMIT_MB,
    )
    if done.killed_by:
        return Traced(OUTCOMES[done.killed_by], f"{job['function']} {_limit(done, lane)} while it was traced", (), done.wall_s)
    if done.returncode != 0:
        return _failed(done, folder / "out" / "failure.json")
    exports = []
    for index, point in enumerate(points):
        path = folder / "out" / f"{index}.stablehlo"
        if not path.is_file() or path.is_symlink():
            return Traced("refused", f"nothing was handed over for operating point {point.name}", (), done.wall_s)
        exports.append(Export(point.name, path.read_bytes()))
    return Traced("completed", "", tuple(exports), done.wall_s)


def _limit(done: Finished, lane: Lane) -> str:
    budgets = lane.budgets
    return {
        "timeout": f"passed its {budgets.trace_s:g} s",
        "output": f"wrote more than {budgets.output_kb} KiB",
        "memory": f"took more than {budgets.memory_mb} MiB",
    }[done.killed_by]


def _printable(text: str) -> str:
    """What a candidate says goes to somebody's terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _failed(done: Finished, note: Path) -> Traced:
    """The tracer's own note where it left one; it comes from the candidate's process, so it is shown and never believed."""
    try:
        if not stat.S_ISREG(note.lstat().st_mode):
            raise OSError("not a file")  # a pipe would never end, a link may lead anywhere
        with open(note, "rb") as handle:
            told = json.loads(handle.read(65536))
        outcome, message = str(told["outcome"]), _printable(str(told["message"])[:2000])
    except (OSError, ValueError, KeyError, TypeError):
        tail = _printable(" ".join(done.stderr.split()))[-TAIL_CHARS:] or "no message"
        how = f"was ended by signal {-done.returncode}" if done.returncode < 0 else f"ended with {done.returncode}"
        return Traced("crashed", f"the candidate's process {how}: {tail}", (), done.wall_s)
    if outcome == "unavailable":
        raise Unavailable(message, hint="pip install 'kgagent[jax]'")
    return Traced(outcome if outcome in ("crashed", "refused") else "crashed", message, (), done.wall_s)
