"""What is in HBM when memory is fullest: live buffers of a scheduled module at their peak, by source line.

An estimate: the compiler may reuse a buffer in place, or pack smaller than this does; its own peak is the figure to trust.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from kgagent.evidence.attribution import Attribution
from kgagent.evidence.hlo import Computation, Instruction, Module
from kgagent.evidence.shapes import leaves

HBM = 0
_PASS_ON = frozenset(("bitcast", "get-tuple-element", "tuple", "opt-barrier", "optimization-barrier", "add-dependency", "while"))
_STEPS = 16
_BODIES = frozenset(("while", "call", "conditional"))


@dataclass(frozen=True, slots=True)
class LiveBuffer:
    """One array that is live at the peak."""

    name: str
    shape: str
    buffer_bytes: int  # padded to tiles, as it lies in memory
    kind: str  # argument, temporary
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
        if instruction.opcode.endswith("-start"):
            shapes = shapes[:1]  # the destination; the source is another's
        elif instruction.opcode.endswith("-done"):
            return
        for index, leaf in enumerate(shapes):
            if leaf.space == HBM and leaf.padded_bytes and index not in updated:
                shape = f"{leaf.dtype}[{','.join(map(str, leaf.dims))}]"
                yield _Array(instruction, computation, index, shape, leaf.padded_bytes)

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
        last, returned = self._last_uses(computation)
        live: dict[str, tuple[_Array, ...]] = {}
        size = 0
        best = _Best(0, (), "")
        for at, instruction in enumerate(computation.instructions):
            made = () if inner and instruction.name in returned else tuple(self.arrays(computation, instruction))
            live[instruction.name] = made
            size += sum(array.size for array in made)
            called = self._called(instruction)
            if size + called.size > best.size:
                arrays = tuple(array for kept in live.values() for array in kept)
                best = _Best(size + called.size, arrays + called.arrays, called.at or instruction.name)
            for name in last.get(at, ()):
                size -= sum(array.size for array in live.pop(name, ()))
        self._bodies[computation.name] = best
        return best

    def _called(self, instruction: Instruction) -> _Best:
        """The largest peak among the computations that run inside an instruction."""
        if instruction.opcode not in _BODIES:
            return _Best(0, (), "")
        peaks = [self.peak(self.module.computations[name], inner=True) for _, name in instruction.called if name in self.module.computations]
        return max(peaks, key=lambda peak: peak.size, default=_Best(0, (), ""))

    def _last_uses(self, computation: Computation) -> tuple[dict[int, list[str]], frozenset[str]]:
        """(position -> instructions whose arrays die there, instructions whose arrays are returned); aliases are followed, tuples by element."""
        owners: dict[str, tuple[frozenset[str], ...]] = {}
        last: dict[str, int] = {}
        for at, instruction in enumerate(computation.instructions):
            parts = [owners.get(name, ()) for name in instruction.operands]
            result = self._owners(instruction, parts, computation)
            # reading one element of a tuple is no use of the others
            used = result if instruction.opcode in ("get-tuple-element", "tuple") else [part for operand in parts for part in operand]
            for owner in frozenset[str]().union(*used):
                last[owner] = at
            if instruction.name not in last:
                last[instruction.name] = at
            owners[instruction.name] = tuple(result)
        returned = frozenset[str]().union(*owners.get(computation.root.name, ()))
        for owner in returned:
            last[owner] = len(computation.instructions)
        out: dict[int, list[str]] = defaultdict(list)
        for owner, at in last.items():
            out[at].append(owner)
        return out, returned

    def _owners(self, instruction: Instruction, parts: list[tuple[frozenset[str], ...]], computation: Computation) -> list[frozenset[str]]:
        """Whose arrays each element of a result is."""
        own = frozenset((instruction.name,))
        everything = frozenset[str]().union(*(part for operand in parts for part in operand))
        if instruction.opcode == "get-tuple-element" and parts:
            index = int(instruction.attribute("index") or 0)
            return [parts[0][index] if index < len(parts[0]) else frozenset[str]().union(*parts[0])]
        if instruction.opcode == "tuple":
            return [frozenset[str]().union(*operand) for operand in parts]
        if instruction.opcode in _PASS_ON and len(parts) == 1:
            return list(parts[0])
        if instruction.opcode.endswith(("-done", "-update")):
            return [everything]
        if instruction.opcode.endswith("-start"):
            return [own | everything]  # the source must stay until the done
        count = len(leaves(instruction.shape)) if instruction.shape.startswith("(") else 1
        result = [own] * count
        for index, name in self.in_place(computation, instruction).items():
            at = instruction.operands.index(name)
            if index < count:
                result[index] = frozenset[str]().union(*parts[at])
        return result


def memory_peak(module: Module) -> Peak:
    """The fullest moment of a scheduled module; arguments stay to the end unless they are donated to an output."""
    attribution = Attribution(module)
    best = _Walk(attribution).peak(module.entry)
    arguments = []
    for parameter in module.entry.parameters.values():
        for leaf in leaves(parameter.shape):
            if leaf.space == HBM and leaf.padded_bytes:
                shape = f"{leaf.dtype}[{','.join(map(str, leaf.dims))}]"
                arguments.append(LiveBuffer(parameter.name, shape, leaf.padded_bytes, "argument", "", ()))
    temporaries = []
    for array in best.arrays:
        origins = attribution.origins(array.computation, array.owner)
        frames = tuple(frame.place for frame in origins[0].frames) if origins else ()
        temporaries.append(LiveBuffer(array.owner.name, array.shape, array.size, "temporary", frames[0] if frames else "", frames))
    buffers = sorted((*arguments, *temporaries), key=lambda buffer: (-buffer.buffer_bytes, buffer.name))
    total_arguments = sum(buffer.buffer_bytes for buffer in arguments)
    return Peak(best.size + total_arguments, total_arguments, best.at, tuple(buffers))
