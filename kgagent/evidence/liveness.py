"""What is in HBM when memory is fullest: live buffers of a scheduled module at their peak, by source line.

HBM alone, and no substitute for the compiler's own peak, which it meets within 1% on the tested steps: this says which buffers it is made of.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from kgagent.evidence.attribution import Attribution
from kgagent.evidence.hlo import Computation, Instruction, Module
from kgagent.evidence.shapes import Shape, leaves

HBM = 0
_PASS_ON = frozenset(("bitcast", "get-tuple-element", "tuple", "opt-barrier", "optimization-barrier", "add-dependency", "while"))
_DONATED = re.compile(r"\{(\d*)\}: \(\d+, \{[^}]*\}, (?:may|must)-alias\)")
_STEPS = 16
_BODIES = frozenset(("while", "call", "conditional"))
_NESTED = re.compile(r"^\(\(|, (?:/\*.*?\*/)?\(")

Owner: TypeAlias = tuple[str, int]  # an instruction's name and which array of its result: each dies on its own
Owners: TypeAlias = frozenset[Owner]


@dataclass(frozen=True, slots=True)
class LiveBuffer:
    """One array that is live at the peak."""

    name: str
    shape: str
    buffer_bytes: int  # padded to tiles, as it lies in memory
    kind: str  # argument, result, temporary
    line: str
    frames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Peak:
    """The fullest moment of one execution."""

    peak_bytes: int
    argument_bytes: int
    at: str  # instruction running then
    buffers: tuple[LiveBuffer, ...]  # largest first


@dataclass(frozen=True, slots=True)
class _Array:
    owner: Instruction
    computation: Computation
    index: int
    shape: str
    size: int


@dataclass(frozen=True, slots=True)
class _Best:
    size: int
    arrays: tuple[_Array, ...]
    at: str


class _Walk:
    """Simulates one computation in printed order; nested bodies add their own peak where they run."""

    def __init__(self, attribution: Attribution) -> None:
        self.attribution = attribution
        self.module = attribution.module
        self._bodies: dict[str, _Best] = {}

    def arrays(self, computation: Computation, instruction: Instruction) -> Iterator[_Array]:
        """Arrays that an instruction writes to HBM itself."""
        if instruction.opcode in _PASS_ON or instruction.opcode in ("parameter", "constant", "after-all", "iota"):
            return
        shapes = leaves(instruction.shape)
        updated = self.in_place(computation, instruction)
        if instruction.opcode.endswith("-start") and instruction.shape.startswith("("):
            shapes = self._results_of_start(computation, instruction, shapes)
        elif instruction.opcode.endswith("-done"):
            return
        for index, leaf in enumerate(shapes):
            if leaf.space == HBM and leaf.padded_bytes and index not in updated:
                shape = f"{leaf.dtype}[{','.join(map(str, leaf.dims))}]"
                yield _Array(instruction, computation, index, shape, leaf.padded_bytes)

    @staticmethod
    def _results_of_start(computation: Computation, instruction: Instruction, shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """A start's tuple names its sources too: behind its destination for a copy, before its results for all else."""
        if instruction.opcode == "copy-start":
            return shapes[:1]
        sources = sum(len(leaves(found.shape)) for name in instruction.operands if (found := computation.by_name.get(name)) is not None)
        return tuple(shape for shape in shapes[sources:] if shape.dims)  # scalars are the transfer's state

    def in_place(self, computation: Computation, instruction: Instruction) -> dict[int, str]:
        """Result index -> operand that it overwrites: updates of a slice write into the array they are given."""
        if instruction.opcode == "dynamic-update-slice" and instruction.operands:
            return {0: instruction.operands[0]}
        inner = self.module.computations.get(dict(instruction.called).get("calls", "")) if instruction.opcode == "fusion" else None
        if inner is None:
            return {}
        roots = [inner.by_name.get(name) for name in inner.root.operands] if inner.root.opcode == "tuple" else [inner.root]
        out = {}
        for index, root in enumerate(roots):
            number = self._updated_parameter(inner, root)
            if number is not None and number < len(instruction.operands):
                out[index] = instruction.operands[number]
        return out

    def _updated_parameter(self, inner: Computation, root: Instruction | None) -> int | None:
        """The parameter whose slice a fusion's root updates, bitcasts looked through."""
        updates = False
        for _ in range(_STEPS):
            if root is None or root.opcode == "parameter":
                break
            if root.opcode not in ("bitcast", "dynamic-update-slice", "fusion") or not root.operands:
                return None
            nested = self.in_place(inner, root).get(0) if root.opcode == "fusion" else root.operands[0]
            if nested is None:
                return None
            updates = updates or root.opcode != "bitcast"
            root = inner.by_name.get(nested)
        found = root is not None and root.opcode == "parameter" and updates and root.args.strip().isdigit()
        return int(root.args) if root is not None and found else None

    def peak(self, computation: Computation, inner: bool = False) -> _Best:
        """The fullest moment, arguments not counted; what an inner computation returns lies where its caller keeps it."""
        if computation.name in self._bodies:
            return self._bodies[computation.name]
        self._bodies[computation.name] = _Best(0, (), "")  # recursion can't occur; damaged text ends here
        last, elements = self._last_uses(computation)
        returned = _union(elements)
        live: dict[Owner, _Array] = {}
        size = 0
        best = _Best(0, (), "")
        for at, instruction in enumerate(computation.instructions):
            for array in self.arrays(computation, instruction):
                owner = (instruction.name, array.index)
                if not (inner and owner in returned):
                    live[owner] = array
                    size += array.size
            called = self._called(instruction)
            if size + called.size > best.size:
                best = _Best(size + called.size, tuple(live.values()) + called.arrays, called.at or instruction.name)
            for owner in last.get(at, ()):
                dead = live.pop(owner, None)
                size -= dead.size if dead else 0
        self._bodies[computation.name] = best
        return best

    def returned(self, computation: Computation, without: frozenset[int]) -> tuple[_Array, ...]:
        """Arrays that a computation returns, elements `without` left out."""
        elements = self._last_uses(computation)[1]
        kept = _union([owners for index, owners in enumerate(elements) if index not in without])
        names = frozenset(name for name, _ in kept)
        made = (array for instruction in computation.instructions if instruction.name in names for array in self.arrays(computation, instruction))
        return tuple(array for array in made if (array.owner.name, array.index) in kept)

    def _called(self, instruction: Instruction) -> _Best:
        """The largest peak among the computations that run inside an instruction."""
        if instruction.opcode not in _BODIES:
            return _Best(0, (), "")
        peaks = [self.peak(self.module.computations[name], inner=True) for _, name in instruction.called if name in self.module.computations]
        return max(peaks, key=lambda peak: peak.size, default=_Best(0, (), ""))

    def _last_uses(self, computation: Computation) -> tuple[dict[int, list[Owner]], tuple[Owners, ...]]:
        """(position -> arrays that die there, owners of each returned element); aliases are followed, tuples by element."""
        owners: dict[str, tuple[Owners, ...]] = {}
        last: dict[Owner, int] = {}
        for at, instruction in enumerate(computation.instructions):
            parts = [owners.get(name, ()) for name in instruction.operands]
            result = self._owners(instruction, parts, computation)
            # reading one element of a tuple is no use of the others
            used = result if instruction.opcode in ("get-tuple-element", "tuple") else [part for operand in parts for part in operand]
            for owner in _union(used):
                last[owner] = at
            for owner in _own(instruction):
                last.setdefault(owner, at)
            owners[instruction.name] = tuple(result)
        returned = owners.get(computation.root.name, ())
        for owner in _union(returned):
            last[owner] = len(computation.instructions)
        out: dict[int, list[Owner]] = defaultdict(list)
        for owner, at in last.items():
            out[at].append(owner)
        return out, returned

    def _owners(self, instruction: Instruction, parts: list[tuple[Owners, ...]], computation: Computation) -> list[Owners]:
        """Whose arrays each element of a result is."""
        own = _own(instruction)
        everything = _union([part for operand in parts for part in operand])
        if instruction.opcode == "get-tuple-element" and parts:
            index = int(instruction.attribute("index") or 0)
            return [parts[0][index] if index < len(parts[0]) else _union(parts[0])]
        if instruction.opcode == "tuple":
            return [_union(operand) for operand in parts]
        if instruction.opcode in _PASS_ON and len(parts) == 1:
            return list(parts[0])
        if instruction.opcode.endswith(("-done", "-update")):
            return [everything]
        if instruction.opcode.endswith("-start"):
            return [own | everything]  # the source must stay until the done
        count = len(own)
        # elements of a nested tuple aren't its arrays one by one: there all live as long as any
        result = [own] * count if _NESTED.search(instruction.shape) else [frozenset(((instruction.name, index),)) for index in range(count)]
        for index, name in self.in_place(computation, instruction).items():
            at = instruction.operands.index(name)
            if index < count:
                result[index] = _union(parts[at])
        return result


def _own(instruction: Instruction) -> Owners:
    """Every array of an instruction's own result."""
    count = len(leaves(instruction.shape)) if instruction.shape.startswith("(") else 1
    return frozenset((instruction.name, index) for index in range(count))


def _union(parts: Iterable[Owners]) -> Owners:
    return frozenset[Owner]().union(*parts)


def memory_peak(module: Module) -> Peak:
    """The fullest moment of a scheduled module. Arguments and results are there from beginning to end, as the compiler lays them out."""
    attribution = Attribution(module)
    walk = _Walk(attribution)
    best = walk.peak(module.entry, inner=True)
    buffers = [
        LiveBuffer(parameter.name, shape, size, "argument", "", ())
        for parameter in module.entry.parameters.values()
        for shape, size in _in_hbm(parameter)
    ]  # fmt: skip
    arguments = sum(buffer.buffer_bytes for buffer in buffers)
    buffers += [_buffer(attribution, array, "result") for array in walk.returned(module.entry, _donated(module))]
    buffers += [_buffer(attribution, array, "temporary") for array in best.arrays]
    ranked = tuple(sorted(buffers, key=lambda buffer: (-buffer.buffer_bytes, buffer.name)))
    return Peak(sum(buffer.buffer_bytes for buffer in ranked), arguments, best.at, ranked)


def _donated(module: Module) -> frozenset[int]:
    """Result elements that lie in a donated argument's memory."""
    return frozenset(int(index or 0) for index in _DONATED.findall(module.header))


def _in_hbm(instruction: Instruction) -> Iterator[tuple[str, int]]:
    for leaf in leaves(instruction.shape):
        if leaf.space == HBM and leaf.padded_bytes:
            yield f"{leaf.dtype}[{','.join(map(str, leaf.dims))}]", leaf.padded_bytes


def _buffer(attribution: Attribution, array: _Array, kind: str) -> LiveBuffer:
    origins = attribution.origins(array.computation, array.owner)
    frames = tuple(frame.place for frame in origins[0].frames) if origins else ()
    return LiveBuffer(array.owner.name, array.shape, array.size, kind, frames[0] if frames else "", frames)
