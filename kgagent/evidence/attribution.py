"""Which lines an instruction came from and what class of work it is; fusions answer for all their parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from kgagent.evidence.calls import Count, counts
from kgagent.evidence.cost import COLLECTIVES, CONTROL, FREE, MOVES, base_opcode, work
from kgagent.evidence.frames import Frame
from kgagent.evidence.hlo import Computation, Instruction, Module
from kgagent.evidence.kernels import is_kernel

_REACH = 6  # steps from a copy to who it is for; farther is guessing
_MATMUL_TARGETS = ("matmul", "gemm", "dot", "conv")


@dataclass(frozen=True, slots=True)
class Origin:
    """One frame chain of an instruction, with the share of the instruction's work it stands for."""

    frames: tuple[Frame, ...]  # innermost first
    share: float
    inherited: bool = False  # from a neighbour: the instruction itself has no metadata


class Attribution:
    """A module read for its origins; what is asked twice is worked out once."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.counts: dict[str, Count] = counts(module)
        self._inner: set[str] = set()
        for _, instruction in module.instructions():
            if instruction.opcode not in CONTROL and not instruction.opcode.startswith("async-"):
                self._inner.update(name for _, name in instruction.called)
        self._users: dict[str, dict[str, list[str]]] = {}
        self._origins: dict[tuple[str, str], tuple[Origin, ...]] = {}

    def executed(self) -> Iterator[tuple[Computation, Instruction, Count]]:
        """Instructions that run by themselves: not the parts of fusions or the functions of reductions."""
        for name, count in self.counts.items():
            if name not in self._inner and name in self.module.computations:
                computation = self.module.computations[name]
                for instruction in computation.instructions:
                    yield computation, instruction, count

    def parts(self, computation: Computation, instruction: Instruction, depth: int = 0) -> Iterator[tuple[Computation, Instruction]]:
        """What a fusion is made of, nested fusions opened; other instructions are their own only part."""
        inner = self.module.computations.get(dict(instruction.called).get("calls", "")) if instruction.opcode == "fusion" and depth < 20 else None
        if inner is None:
            yield computation, instruction
            return
        for part in inner.instructions:
            yield from self.parts(inner, part, depth + 1)

    def origins(self, computation: Computation, instruction: Instruction) -> tuple[Origin, ...]:
        """Frame chains by share of work, dominant first; () where the compiler kept none. Shares sum to 1."""
        key = (computation.name, instruction.name)
        if key not in self._origins:
            self._origins[key] = self._find_origins(computation, instruction)
        return self._origins[key]

    def _find_origins(self, computation: Computation, instruction: Instruction) -> tuple[Origin, ...]:
        own = self.module.own_frames(instruction)
        if instruction.opcode != "fusion":
            return (Origin(own, 1.0),) if own else self._inherited(computation, instruction)
        weights: dict[tuple[Frame, ...], float] = defaultdict(float)
        for where, part in self.parts(computation, instruction):
            frames = self.module.own_frames(part)
            if frames and part.opcode not in ("parameter", "constant"):
                weights[frames] += work(where, part)
        if own:
            weights[own] += 0.0
        total = sum(weights.values())
        if not weights:
            return self._inherited(computation, instruction)
        if not total:
            return (Origin(own, 1.0),) if own else tuple(Origin(frames, 1.0 / len(weights)) for frames in weights)
        ranked = sorted(weights.items(), key=lambda item: (-item[1], item[0] != own))
        return tuple(Origin(frames, weight / total) for frames, weight in ranked)

    def _inherited(self, computation: Computation, instruction: Instruction) -> tuple[Origin, ...]:
        """What the compiler puts in (copies, zeroed accumulators) has no metadata: it belongs to the nearest user, or else source."""
        users = self._users_of(computation)
        for step in (lambda name: users.get(name, ()), lambda name: computation.by_name[name].operands):
            frontier, seen = [instruction.name], {instruction.name}
            for _ in range(_REACH):
                frontier = [other for name in frontier for other in step(name) if other in computation.by_name and other not in seen]
                seen.update(frontier)
                for name in frontier:
                    frames = self.module.own_frames(computation.by_name[name])
                    if frames:
                        return (Origin(frames, 1.0, inherited=True),)
        return ()

    def _users_of(self, computation: Computation) -> dict[str, list[str]]:
        if computation.name not in self._users:
            users: dict[str, list[str]] = defaultdict(list)
            for instruction in computation.instructions:
                for name in instruction.operands:
                    users[name].append(instruction.name)
            self._users[computation.name] = users
        return self._users[computation.name]

    def op_class(self, computation: Computation, instruction: Instruction) -> str:
        """matmul, kernel, collective, reduce, elementwise, data movement, control, custom call, free."""
        opcode = base_opcode(instruction.opcode)
        if opcode == "fusion":
            best = max(self.parts(computation, instruction), key=lambda part: work(*part), default=None)
            classes = {self.op_class(*part) for part in self.parts(computation, instruction) if part[1].opcode != "fusion"}
            if "matmul" in classes:
                return "matmul"
            return self.op_class(*best) if best and best[1].opcode != "fusion" and work(*best) else "data movement"
        if opcode in ("dot", "convolution"):
            return "matmul"
        if opcode == "custom-call":
            if is_kernel(instruction):
                return "kernel"
            return "matmul" if any(word in instruction.target.lower() for word in _MATMUL_TARGETS) else "custom call"
        if opcode in COLLECTIVES:
            return "collective"
        if opcode in ("reduce", "reduce-window", "select-and-scatter", "sort", "topk"):
            return "reduce"
        if opcode in MOVES or instruction.opcode in MOVES:
            return "data movement"
        if opcode in CONTROL or opcode.startswith("async"):
            return "control"
        return "free" if opcode in FREE else "elementwise"
