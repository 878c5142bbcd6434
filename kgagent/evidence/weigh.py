"""Operations with a weight (measured time, or a static cost) and their origins: what flame graphs and gaps are made of."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kgagent.errors import UsageError
from kgagent.evidence.attribution import Attribution, Origin
from kgagent.evidence.cost import HIDDEN, matmul_flops
from kgagent.evidence.diff import op_row
from kgagent.evidence.hlo import Computation, Instruction, Module
from kgagent.evidence.profile import Device, Profile
from kgagent.evidence.shapes import without_layout

_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
STATIC_UNITS = ("bytes", "cycles", "flops")
UNJOINED = "not in the HLO"


@dataclass(frozen=True, slots=True)
class WeightedOp:
    """One operation; `origins` is empty where no line is known, `op_class` says UNJOINED where even the instruction isn't."""

    name: str
    module: str
    op_class: str
    shape: str
    kernel: str
    weight: float
    origins: tuple[Origin, ...]


@dataclass(frozen=True, slots=True)
class Weighed:
    """Operations of a run or compile in one unit; always shown with the remainder that has no line."""

    unit: str  # us, bytes, cycles, flops
    predicted: bool
    ops: tuple[WeightedOp, ...]  # heaviest first
    blind: str  # what the weight doesn't see; "" where it sees all

    @property
    def total(self) -> float:
        return sum(op.weight for op in self.ops)

    @property
    def attributed(self) -> float:
        """Weight whose line is known."""
        return sum(op.weight for op in self.ops if op.origins)

    @property
    def remainder_text(self) -> str:
        """`97.1% of us has a line; 2.9% unattributed`."""
        if not self.total:
            return f"no {self.unit} at all"
        share = 100 * self.attributed / self.total
        return f"{share:.1f}% of {self.unit} has a line; {100 - share:.1f}% unattributed"

    def lines(self) -> tuple[tuple[str, float], ...]:
        """(path:line, weight) by innermost frame, heaviest first, the unattributed under ""; sums to the total."""
        sums: dict[str, float] = defaultdict(float)
        for op in self.ops:
            for origin in op.origins:
                sums[origin.frames[0].place] += op.weight * origin.share
            if not op.origins:
                sums[""] += op.weight
        return tuple(sorted(sums.items(), key=lambda item: (-item[1], item[0])))

    def share_within(self, file_ending: str) -> float:
        """Share of the weight with a frame anywhere in files of that ending: the user's own code."""
        own = sum(op.weight * origin.share for op in self.ops for origin in op.origins if any(frame.file.endswith(file_ending) for frame in origin.frames))
        return own / self.total if self.total else 0.0


def weigh_profile(profile: Profile, modules: Mapping[str, Sequence[Module]]) -> Weighed:
    """Measured self time of every operation, joined to the modules by name (several of one name: the one that has its operations)."""
    known: dict[int, tuple[Attribution, dict[str, tuple[Computation, Instruction]]]] = {}
    ops = []
    for device in profile.devices:
        chosen = {name: _choose(device, name, modules.get(name, ())) for name in {op.module for op in device.ops}}
        for op in device.ops:
            module = chosen[op.module]
            found = None
            if module is not None:
                if id(module) not in known:
                    known[id(module)] = (Attribution(module), {i.name: (c, i) for c, i in module.instructions()})
                attribution, instructions = known[id(module)]
                found = instructions.get(op.name)
            if module is None or found is None:
                ops.append(WeightedOp(op.name, op.module, UNJOINED, "", "", op.self_us, ()))
                continue
            row = op_row(attribution, *found, 1)
            ops.append(WeightedOp(op.name, op.module, row.op_class, row.shape, row.kernel, op.self_us, attribution.origins(*found)))
    return Weighed("us", False, _sorted(ops), "")


def _choose(device: Device, name: str, candidates: Sequence[Module]) -> Module | None:
    """Among modules of one name, the one with most of the operations seen."""
    seen = {op.name for op in device.ops if op.module == name}
    return max(candidates, key=lambda module: len(seen & {i.name for _, i in module.instructions()}), default=None)


def weigh_module(module: Module, unit: str = "bytes") -> Weighed:
    """Static cost of a compile: bytes written, the compiler's estimated cycles, or FLOPs of matrix products; loops by their trips."""
    if unit not in STATIC_UNITS:
        raise UsageError(f"no static cost called {unit!r}", hint=f"one of {', '.join(STATIC_UNITS)}")
    attribution = Attribution(module)
    ops, unseen = [], 0
    for computation, instruction, count in attribution.executed():
        if instruction.opcode in HIDDEN:
            continue
        row = op_row(attribution, computation, instruction, count.times)
        weight = _static(unit, attribution, computation, instruction, row.output_bytes)
        if weight is None:
            unseen += row.op_class in ("kernel", "custom call")
            continue
        if weight:
            origins = attribution.origins(computation, instruction)
            ops.append(WeightedOp(row.name, module.name, row.op_class, without_layout(instruction.shape), row.kernel, weight * count.times, origins))
    blind = {"cycles": "estimated cycles cover fusions only", "flops": "FLOPs of matrix products only"}.get(unit, "")
    if unseen and unit != "bytes":
        blind += f"; nothing inside {unseen} custom call(s)"
    return Weighed(unit, True, _sorted(ops), blind)


def _static(unit: str, attribution: Attribution, computation: Computation, instruction: Instruction, output_bytes: int) -> float | None:
    if unit == "bytes":
        return float(output_bytes)
    if unit == "cycles":
        found = _CYCLES.search(instruction.text)
        return float(found.group(1)) if found else None
    if instruction.opcode.startswith("custom-call"):
        return None
    return float(sum(matmul_flops(*part) for part in attribution.parts(computation, instruction)))


def _sorted(ops: Iterable[WeightedOp]) -> tuple[WeightedOp, ...]:
    return tuple(sorted(ops, key=lambda op: (-op.weight, op.module, op.name)))
