"""What compiler flags do to a program here: unknown, refused, inert, or what they change. Answered by compiling.

A flag is inert only where optimized HLO *and* the schedule of every instruction are equal; those that act at run time are never called so.
"""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from kgagent.compiler.aot import aot_compile
from kgagent.compiler.records import Compiled
from kgagent.errors import CompileError, EvidenceError
from kgagent.evidence.canonical import canonical_digest
from kgagent.evidence.diff import ModuleDiff, diff
from kgagent.evidence.hlo import Module, parse_hlo
from kgagent.evidence.llo import dump_files
from kgagent.objects import sha256_hex

_ADDRESS = re.compile(r"0x[0-9a-f]{9,}")


@dataclass(frozen=True, slots=True)
class FlagRow:
    """One flag's answer. `hlo` and `llo` say whether each is equal to the baseline's; None where it wasn't compared."""

    flag: str
    value: str
    verdict: str  # unknown, bad value, blocked, changes, inert, run time
    what: str
    hlo_equal: bool | None = None
    llo_equal: bool | None = None
    schedules_changed: tuple[str, ...] = ()  # HLO instructions whose bundles differ
    change: ModuleDiff | None = None


@dataclass(frozen=True, slots=True)
class FlagsAudit:
    """A set of flags against one program and topology."""

    topology: str
    libtpu: str
    rows: tuple[FlagRow, ...]
    compile_s: float  # summed


@dataclass(frozen=True, slots=True)
class _Side:
    compiled: Compiled
    module: Module | None
    schedules: dict[str, str]


@cache
def _run_time_patterns() -> tuple[re.Pattern[str], ...]:
    text = resources.files("kgagent.compiler").joinpath("run_time_flags.toml").read_text(encoding="utf-8")
    return tuple(re.compile(str(row["pattern"])) for row in tomllib.loads(text)["flags"])


def acts_at_run_time(flag: str) -> bool:
    """Whether a flag is listed as one that the runtime reads: equal programs say nothing about it."""
    return any(pattern.fullmatch(flag) for pattern in _run_time_patterns())


def audit_flags(
    exported: bytes, topology: str, flags: Mapping[str, str], *, wall_s: float = 300, workers: int | None = None, progress: Callable[[str], None] | None = None
) -> FlagsAudit:
    """Compile the program once as it is, once with each flag alone; unknown flags are told from all the others in one start of the compiler."""
    rows: dict[str, FlagRow] = {}
    left = {name.removeprefix("--"): value for name, value in flags.items()}
    while left:  # libtpu names every flag it doesn't take, then gives up
        first = aot_compile(exported, topology, flags=left, wall_s=wall_s)
        refused = _refused(first, left)
        rows.update({row.flag: row for row in refused})
        left = {name: value for name, value in left.items() if name not in rows}
        if not refused:
            break
    with tempfile.TemporaryDirectory(prefix="kgagent-flags-") as name:
        folder = Path(name)

        def compile_with(flag: str | None) -> _Side:
            if progress:
                progress(f"compiling with {flag}" if flag else "compiling without flags")
            where = folder / (flag or "baseline")
            chosen = {flag: left[flag]} if flag else {}
            return _side(aot_compile(exported, topology, flags=chosen, wall_s=wall_s, dump=where), where)

        baseline = compile_with(None)
        if baseline.module is None:
            error = baseline.compiled.error
            raise CompileError(f"the program doesn't compile without flags: {error.what if error else ''}", where=topology, hint="audit flags on one that does")
        with ThreadPoolExecutor(max_workers=workers or os.cpu_count() or 1) as pool:
            sides = dict(zip(left, pool.map(compile_with, left), strict=True))
    for flag, side in sides.items():
        rows[flag] = _row(flag, left[flag], baseline, side)
    order = [name.removeprefix("--") for name in flags]
    seconds = baseline.compiled.compile_s + sum(side.compiled.compile_s for side in sides.values())
    return FlagsAudit(topology, baseline.compiled.libtpu, tuple(rows[flag] for flag in order), seconds)


def _refused(compiled: Compiled, flags: Mapping[str, str]) -> list[FlagRow]:
    from kgagent.compiler.messages import refused_flags

    if compiled.error is None or compiled.error.stage != "flags":
        return []
    bad, unknown = refused_flags(compiled.log)
    rows = [FlagRow(flag, flags.get(flag, ""), "unknown", "this compiler has no such flag") for flag in unknown if flag in flags]
    rows += [FlagRow(flag, flags[flag], "bad value", f"{value!r} isn't a value for it") for flag, value in bad.items() if flag in flags]
    return rows


def _side(compiled: Compiled, folder: Path) -> _Side:
    if compiled.status != "ok":
        return _Side(compiled, None, {})
    try:
        schedules = {files.instruction: _digest(files.bundles) for files in dump_files(folder)}
    except EvidenceError:
        schedules = {}
    return _Side(compiled, parse_hlo(compiled.hlo_text), schedules)


def _digest(path: Path) -> str:
    return sha256_hex(_ADDRESS.sub("", path.read_text(encoding="utf-8", errors="replace")))


def _row(flag: str, value: str, baseline: _Side, side: _Side) -> FlagRow:
    if side.module is None or baseline.module is None:
        error = side.compiled.error
        return FlagRow(flag, value, "blocked", error.what if error else "it doesn't compile")
    hlo = canonical_digest(side.module) == canonical_digest(baseline.module)
    names = {*side.schedules, *baseline.schedules}
    changed = tuple(sorted(name for name in names if side.schedules.get(name) != baseline.schedules.get(name)))
    llo = not changed if side.schedules and baseline.schedules else None
    if not hlo:
        found = diff(baseline.module, side.module)
        what = f"optimized HLO: {len(found.went)} instructions went, {len(found.came)} came, {len(found.changed)} changed"
        return FlagRow(flag, value, "changes", what, hlo, llo, changed, found)
    if llo is False:
        return FlagRow(flag, value, "changes", f"same HLO, other schedules: {len(changed)} instructions", hlo, llo, changed)
    if acts_at_run_time(flag):
        return FlagRow(flag, value, "run time", "the compiled program is the same; this flag acts when it runs", hlo, llo)
    if llo is None:
        return FlagRow(flag, value, "run time", "the same optimized HLO; schedules weren't dumped, so nothing is claimed", hlo, llo)
    return FlagRow(flag, value, "inert", "same optimized HLO, same schedules", hlo, llo)
