"""LLO dumps: what the compiler scheduled for one kernel, bundle by bundle: loops, conditionals, spills, slots, source lines.

Bundles are instructions words of a VLIW machine: each is one cycle or more, whatever number of its slots are filled.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kgagent.errors import EvidenceError

_HEADER = re.compile(r"^ *(0x[0-9a-f]+|0) +(L[HBE]|P[BF]|CT)? *: *((?:> ?)*)\{", re.MULTILINE)
_OPCODE = re.compile(r"^\s*(?:%\S+ = )?(?:\(?[!%][^)]*\)? )?([a-z][\w.]*)")
_BRANCH = re.compile(r"sbr\.rel (?:\((!?%[\w]+)\) )?.*?target = \$region(\d+)", re.DOTALL)
_EXIT = re.compile(r"scmp\.(ge|gt)\.s32\.totalorder %\S+, (\d+) /\* loop exit test")
_REGIONS = re.compile(r"(Start/End empty|Start|End) region (\d+)")
_TAIL = re.compile(r"\}\s*/\*((?:(?!\*/).)*region(?:(?!\*/).)*)\*/\s*$", re.DOTALL)
_PLACE = re.compile(r'loc\("([^"]+)":(\d+)')
_ALLOCATION = re.compile(r"(#allocation\d+) \[shape = '([^']*)', space=(\w+), size = (0x[0-9a-f]+)([^\n]*?), tag = '([^']*)'\]")
_CAPACITY = re.compile(r"== CAPAC\w+:\n([^\n]+)\n([^\n]+)\n")
_TOTAL = re.compile(r"total scheduled bundles:\s*(\d+)\s*\n\s*empty scheduled bundles:\s*(\d+)")
_PSEUDO = {"inlined_call_operand.hbm", "inlined_call_operand.vmem", "inlined_call_operand.smem"}  # names, not operations
BRANCH_DELAY = 4  # bundles behind a branch that run whichever way it goes


@dataclass(frozen=True, slots=True)
class Bundle:
    """One bundle; `places` has one entry for every located operation."""

    index: int
    mark: str  # LB, PF … or ""
    depth: int  # loops around it
    opcodes: tuple[str, ...]
    places: tuple[str, ...]  # path:line


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of the schedule. A plain pipeline's bound is its grid steps + 2 (prologue and epilogue run inside)."""

    first: int
    last: int
    bound: int | None

    @property
    def bundles(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Conditional:
    """Bundles that a forward branch may skip, with the line of the `pl.when` (or predicate) it came from."""

    branch: int
    first: int
    last: int
    place: str
    depth: int

    @property
    def bundles(self) -> int:
        return max(0, self.last - self.first + 1)


@dataclass(frozen=True, slots=True)
class Slot:
    """A functional unit's slots over the whole schedule."""

    unit: str
    capacity: int  # a bundle
    used: int

    def frac(self, bundles: int) -> float:
        """Share of its slots that hold an operation."""
        return self.used / (self.capacity * bundles) if bundles else 0.0


@dataclass(frozen=True, slots=True)
class Allocation:
    """Scratch memory the kernel asked for."""

    name: str
    shape: str
    space: str
    allocation_bytes: int
    tag: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a dump says of one kernel; a part whose file is missing is None or empty, never 0."""

    kernel: str
    bundles: int
    empty_bundles: int
    loops: tuple[Loop, ...]
    conditionals: tuple[Conditional, ...]
    scalar_spills: int
    scalar_fills: int
    vector_spills: int | None
    vector_fills: int | None
    slots: tuple[Slot, ...]
    allocations: tuple[Allocation, ...]
    vmem_bytes: int | None
    line_bundles: tuple[tuple[str, float], ...]  # path:line -> bundles, each bundle shared by its located operations
    unlocated_bundles: float
    bundle_places: tuple[tuple[str, ...], ...]  # per bundle, path:line of its located operations


@dataclass(frozen=True, slots=True)
class DumpFiles:
    """One instruction's files in a dump folder, by pass."""

    instruction: str
    stamp: int
    passes: tuple[tuple[str, Path], ...]

    @property
    def bundles(self) -> Path:
        """The final bundles; their analysis has a name that ends the same."""
        return next(path for label, path in self.passes if label.endswith("final_bundles") and "schedule" not in label)

    def path(self, suffix: str) -> Path | None:
        """The first file whose pass ends so."""
        return next((path for name, path in self.passes if name.endswith(suffix)), None)


_FILE = re.compile(r"(\d+)-(.+?)-(\d+)-([A-Za-z].*)\.txt$")


def dump_files(folder: Path) -> tuple[DumpFiles, ...]:
    """Instructions with final bundles in a dump folder, the newest compile of each; `EvidenceError` where there is none."""
    groups: dict[tuple[str, int], list[tuple[str, Path]]] = defaultdict(list)
    if not folder.is_dir():
        raise EvidenceError("no such dump folder", where=str(folder), hint="give the folder of --xla_jf_dump_to")
    for path in sorted(folder.iterdir()):
        found = _FILE.match(path.name)
        if found and path.is_file():
            groups[found.group(2), int(found.group(1))].append((found.group(4), path))
    newest: dict[str, DumpFiles] = {}
    for (name, stamp), passes in sorted(groups.items()):
        if any(label.endswith("final_bundles") and "schedule" not in label for label, _ in passes):
            newest[name] = DumpFiles(name, stamp, tuple(passes))
    if not newest:
        raise EvidenceError("no LLO dump there", where=str(folder), hint="dump with --xla_jf_dump_to=DIR --xla_jf_dump_llo_text=true")
    return tuple(newest.values())


def read_schedule(files: DumpFiles) -> Schedule:
    """Everything the dump of one instruction says."""
    bundles_path = files.bundles
    utilization = files.path("static-per-bundle-utilization")
    allocations = files.path("original") or files.path("registers-and-allocations")
    analysis = files.path("schedule-analysis_final_bundles")
    schedule = parse_schedule(
        files.instruction, _text(bundles_path), _text(utilization) if utilization else "", _text(allocations) if allocations else "", where=str(bundles_path)
    )
    total = _TOTAL.search(_text(analysis)) if analysis else None
    if total and int(total.group(1)) != schedule.bundles:
        what = f"the dump is cut: {schedule.bundles} bundles of the {total.group(1)} its own analysis counts"
        raise EvidenceError(what, where=str(bundles_path), hint="dump it again; the disk may have been full")
    return schedule


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise EvidenceError(f"a dump file can't be read: {error.strerror or error}", where=str(path)) from error


def parse_schedule(kernel: str, bundle_text: str, utilization_text: str = "", allocation_text: str = "", *, where: str = "") -> Schedule:
    """A kernel's schedule from the texts of its dump files; those that are "" leave their part unknown."""
    bundles: list[Bundle] = []
    starts: dict[int, int] = {}  # region -> bundle
    branches: list[tuple[int, str, int, str, int]] = []  # bundle, predicate, region, place, depth
    bounds: list[tuple[int, int]] = []
    scalar_spills = scalar_fills = empty = 0
    for bundle, text in _bundles(bundle_text):
        bundles.append(bundle)
        empty += set(bundle.opcodes) <= _PSEUDO
        tail = _TAIL.search(text)
        for how, region in _REGIONS.findall(tail.group(1)) if tail else ():
            if how != "End":
                starts.setdefault(int(region), bundle.index)
        found = _BRANCH.search(text)
        if found:
            place = _PLACE.search(found.group(0))
            where_from = f"{place.group(1)}:{place.group(2)}" if place else ""
            branches.append((bundle.index, found.group(1) or "", int(found.group(2)), where_from, bundle.depth))
        exit_test = _EXIT.search(text)
        if exit_test:
            bounds.append((bundle.index, int(exit_test.group(2)) + (exit_test.group(1) == "gt")))
        if "_spill]" in text:
            scalar_spills += len(re.findall(r"= sst \[smem:\[#allocation\d+_spill\]", text))
            scalar_fills += len(re.findall(r"= sld \[smem:\[#allocation\d+_spill\]", text))
    if not bundles:
        raise EvidenceError("no bundles in this dump", where=where, hint="give a *final_bundles.txt")
    if [bundle.index for bundle in bundles] != list(range(len(bundles))):
        raise EvidenceError("the dump's bundles are not consecutive", where=where, hint="dump it again")
    slots, spills, fills = _slots(utilization_text, len(bundles))
    allocations = tuple(
        Allocation(name, shape, space, int(size, 16), tag) for name, shape, space, size, _, tag in dict.fromkeys(_ALLOCATION.findall(allocation_text))
    )
    lines, unlocated = _by_line(bundles)
    return Schedule(
        kernel, len(bundles), empty, _loops(bundles, branches, starts, bounds), _conditionals(branches, starts), scalar_spills, scalar_fills, spills, fills,
        slots, allocations, sum(a.allocation_bytes for a in allocations if a.space == "vmem" and a.allocation_bytes < 2**40) if allocations else None,
        lines, unlocated, tuple(bundle.places for bundle in bundles),
    )  # fmt: skip


def _bundles(text: str) -> Iterator[tuple[Bundle, str]]:
    heads = list(_HEADER.finditer(text))
    for n, head in enumerate(heads):
        end = heads[n + 1].start() if n + 1 < len(heads) else len(text)
        body = text[head.end() : end]
        operations = body.split("  ;;  ")
        opcodes = tuple(found.group(1) for operation in operations if (found := _OPCODE.match(operation)))
        places = tuple(f"{file}:{line}" for operation in operations for file, line in _PLACE.findall(operation)[:1])
        yield Bundle(int(head.group(1), 16), head.group(2) or "", head.group(3).count(">"), opcodes, places), body


def _loops(bundles: list[Bundle], branches: list[tuple[int, str, int, str, int]], starts: dict[int, int], bounds: list[tuple[int, int]]) -> tuple[Loop, ...]:
    """A backward branch closes the loop that begins at its target's body mark."""
    heads = [bundle.index for bundle in bundles if bundle.mark == "LB"]
    out = []
    for at, _, region, _, _ in branches:
        target = starts.get(region)
        if target is None or target > at:
            continue
        first = min((head for head in heads if target <= head <= at), default=target)
        bound = next((value for index, value in reversed(bounds) if first <= index <= at), None)
        out.append(Loop(first, min(at + BRANCH_DELAY, len(bundles) - 1), bound))
    return tuple(sorted(out, key=lambda loop: loop.first))


def _conditionals(branches: list[tuple[int, str, int, str, int]], starts: dict[int, int]) -> tuple[Conditional, ...]:
    out = []
    for at, predicate, region, place, depth in branches:
        target = starts.get(region)
        if target is not None and target > at and predicate:
            out.append(Conditional(at, at + BRANCH_DELAY + 1, target - 1, place, depth))
    return tuple(out)


def _slots(text: str, bundles: int) -> tuple[tuple[Slot, ...], int | None, int | None]:
    """(slots, vector spills, vector fills) from the per-bundle table."""
    head = _CAPACITY.search(text)
    if head is None:
        return (), None, None
    units = [unit.strip() for unit in head.group(1).split(",")]
    capacities = [int(number) for number in head.group(2).split()]
    used = [0] * len(units)
    rows = 0
    for line in text[head.end() :].splitlines():
        numbers = line.split()
        if len(numbers) == len(units) and all(number.isdigit() for number in numbers):
            rows += 1
            for n, number in enumerate(numbers):
                used[n] += int(number)
    if rows != bundles:
        return (), None, None  # a table of another schedule says nothing about this one
    slots = tuple(Slot(unit, capacity, total) for unit, capacity, total in zip(units, capacities, used, strict=True))
    by_unit = {slot.unit: slot.used for slot in slots}
    return slots, by_unit.get("VSTORE:SPILL"), by_unit.get("VLOAD:FILL")


def _by_line(bundles: list[Bundle]) -> tuple[tuple[tuple[str, float], ...], float]:
    shares: dict[str, float] = defaultdict(float)
    unlocated = 0.0
    for bundle in bundles:
        if not bundle.places:
            unlocated += 1
        for place in bundle.places:
            shares[place] += 1 / len(bundle.places)
    return tuple(sorted(shares.items(), key=lambda item: (-item[1], item[0]))), unlocated
