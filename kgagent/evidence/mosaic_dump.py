"""Mosaic dumps: a kernel's MLIR as text, pass by pass; what is read from it is the grid and the blocks of its operands.

Early passes name both as attributes. A kernel that pipelines itself names neither: there its loop counts its grid dimensions
up to their ends, and its copies step each operand by its block.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from math import prod
from pathlib import Path

from kgagent.errors import EvidenceError

_FILE = re.compile(r"(\d+)-(\d+)-mosaic-dump-(.+?)-(original|post-.+|pre-.+)\.txt$")
_FUNCTION = re.compile(r"func\.func (?:private |public )?@([\w.$\-]+)\((.*?)\) (?:-> [^{]*)?attributes \{(.*)", re.DOTALL)
_GRID = re.compile(r"iteration_bounds = array<i64: ([\d, \-]+)>")
_WINDOW = re.compile(r"window_bounds = array<i64: ([\d, ]+)>")
_CONSTANT = re.compile(r"(%\w+) = (?:llo\.constant \{value = (-?\d+) : i32\}|arith\.constant (-?\d+) : i32)")
_LOOP = re.compile(r"scf\.for %\w+ = %\w+ to (%\w+) step %\w+ iter_args\((.*?)\) ->", re.DOTALL)
_ADD = re.compile(r"(%\w+) = llo\.sadd\.s32 (%\w+), (%\w+)")
_EQUAL = re.compile(r"(%\w+) = llo\.seq\.s32 (%\w+), (%\w+)")
_SELECT = re.compile(r"(%\w+) = llo\.sselect (%\w+), (%\w+), (%\w+) :")
_STEP = re.compile(r"= llo\.smul\.u32 %\w+, (%\w+)")
_COPY = re.compile(r'"llo\.trace_start"\(\) <\{[^}]*message = "ep_copy_(?:in|out)"\}>(.*?)"llo\.trace_stop"', re.DOTALL)
_OPERAND = re.compile(r'"llo\.saddr_scaled"\((%arg\d+),')
_BUFFERS = re.compile(r"llo\.alloca_vmem \d+ : i32\s+%\w+ = llo\.alloca_sflag (\d+) :")


@dataclass(frozen=True, slots=True)
class MosaicProgram:
    """One kernel's program in a dump; None and empty where no pass of the dump says."""

    name: str  # as the dump's files call it; "anonymous" where the kernel was given no name
    function: str
    read_from: str  # the pass that told
    passes: int
    grid: tuple[int, ...] | None
    windows: tuple[tuple[int, ...], ...]
    buffers: tuple[int, ...]  # how many of each window a kernel that pipelines itself holds


@dataclass(frozen=True, slots=True)
class MosaicFiles:
    """One kernel's files, in order of passes."""

    name: str
    passes: tuple[tuple[str, Path], ...]


def mosaic_files(folder: Path) -> tuple[MosaicFiles, ...]:
    """The kernels dumped in a folder, the newest compile of each; () where there is none."""
    groups: dict[tuple[str, int], list[tuple[int, str, Path]]] = defaultdict(list)
    for path in sorted(folder.iterdir()):
        found = _FILE.match(path.name)
        if found and path.is_file():
            groups[found.group(3), int(found.group(1))].append((int(found.group(2)), found.group(4), path))
    newest: dict[str, MosaicFiles] = {}
    for (name, _), passes in sorted(groups.items(), key=lambda item: item[0]):
        # a compile deserialises a kernel several times, each under a stamp of its own; only one run goes through the passes
        if name not in newest or len(passes) >= min(2, len(newest[name].passes)):
            newest[name] = MosaicFiles(name, tuple((label, path) for _, label, path in sorted(passes)))
    return tuple(newest.values())


def read_program(files: MosaicFiles) -> MosaicProgram:
    """The grid and blocks from the first pass that tells both, else from the one that tells most."""
    best: MosaicProgram | None = None
    for label, path in files.passes:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise EvidenceError(f"a dump file can't be read: {error.strerror or error}", where=str(path)) from error
        found = parse_program(text, files.name, label, len(files.passes))
        if found is None:
            continue
        if best is None or _told(found) > _told(best):
            best = found
        if found.grid and found.windows:
            break
    if best is None:
        where = str(files.passes[0][1])
        raise EvidenceError("no kernel function in this Mosaic dump", where=where, hint="dump it again with --xla_mosaic_dump_to=DIR")
    return best


def _told(program: MosaicProgram) -> int:
    return (program.grid is not None) + bool(program.windows)


def parse_program(text: str, name: str, label: str, passes: int = 1) -> MosaicProgram | None:
    """A pass's text; None where it holds no kernel function."""
    function = _FUNCTION.search(text)
    if function is None:
        return None
    head = function.group(3).partition("\n")[0]
    grid, windows = _GRID.search(head), tuple(_numbers(sizes) for sizes in _WINDOW.findall(head))
    if grid:
        return MosaicProgram(name, function.group(1), label, passes, _numbers(grid.group(1)), windows, ())
    return MosaicProgram(name, function.group(1), label, passes, *_pipelined(text))


def _pipelined(text: str) -> tuple[tuple[int, ...] | None, tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """(grid, windows, buffers) of a kernel that runs its own loop."""
    loop = _LOOP.search(text)
    if loop is None:
        return None, (), ()
    constants = {name: int(a or b) for name, a, b in _CONSTANT.findall(text[: loop.start()])}
    bound = constants.get(loop.group(1))
    if bound is None:
        return None, (), ()
    body = text[loop.end() :]
    grid = _counters(body, constants)
    return (grid if prod(grid) == bound else (bound,)), _windows(body, constants), tuple(int(n) for n in _BUFFERS.findall(text[: loop.start()]))


def _counters(body: str, constants: dict[str, int]) -> tuple[int, ...]:
    """Ends of the loop's counters, outermost first: `x + 1`, carried, is compared with the end and starts anew at 0.

    The next step's counters are derived from this step's in the same way, so only those that add to a carried value count.
    """
    carried_up: dict[str, str] = {}  # value -> the carried counter it is one above
    ends: dict[str, int] = {}
    equal: dict[str, tuple[str, str]] = {}
    for line in body.splitlines():
        if found := _ADD.search(line):
            if found.group(2).startswith("%arg") and constants.get(found.group(3)) == 1:
                carried_up[found.group(1)] = found.group(2)
        elif found := _EQUAL.search(line):
            equal[found.group(1)] = (found.group(2), found.group(3))
        elif found := _SELECT.search(line):
            value, condition, then, otherwise = found.groups()
            compared = equal.get(condition)
            if otherwise.startswith("%arg") and carried_up.get(then) == otherwise:
                carried_up[value] = otherwise  # counts up only when the dimension inside it wrapped
            elif compared and constants.get(then) == 0 and compared[0] == otherwise and otherwise in carried_up and compared[1] in constants:
                ends.setdefault(carried_up[otherwise], constants[compared[1]])
        elif "scf.if" in line:
            break
    return tuple(reversed(ends.values()))


def _windows(body: str, constants: dict[str, int]) -> tuple[tuple[int, ...], ...]:
    """Block of each operand: what its copies multiply the grid's indices by."""
    out: dict[str, tuple[int, ...]] = {}
    for section in _COPY.findall(body):
        operand = _OPERAND.search(section)
        if operand is None:
            continue
        steps = tuple(constants[step] for step in _STEP.findall(section[: operand.start()]) if step in constants)
        out.setdefault(operand.group(1), steps)
    return tuple(out[name] for name in sorted(out, key=lambda name: int(name.removeprefix("%arg"))))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))
