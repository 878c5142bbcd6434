"""Predicted time of a whole compiled module: fusions by the compiler's estimated cycles, kernels by their own model. Never a measurement.

Always shown with its coverage: what has no estimate (collectives, other custom calls) is counted and named, not taken as free.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kgagent.compiler.kernel_cost import KernelCost, Model, kernel_costs
from kgagent.evidence.attribution import Attribution
from kgagent.evidence.cost import HIDDEN
from kgagent.evidence.diff import op_row
from kgagent.evidence.hlo import Module
from kgagent.evidence.kernels import is_kernel
from kgagent.evidence.shapes import without_layout
from kgagent.evidence.weigh import Weighed, WeightedOp

_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_TRANSFERS = ("copy-start", "copy-done", "slice-start", "slice-done", "while", "call", "conditional")  # overlap with others, or only hold them


@dataclass(frozen=True, slots=True)
class ModuleCost:
    """One execution on one device."""

    predicted_us: float
    low_us: float
    high_us: float
    fusions_us: float
    kernels: tuple[KernelCost, ...]
    uncosted: tuple[tuple[str, int], ...]  # (what, executions a run): operations without any estimate
    coverage: float  # share of the bytes written whose operation has an estimate
    weighed: Weighed  # predicted microseconds by operation and line


def module_cost(module: Module, dump: Path, model: Model, constants: Mapping[str, str]) -> ModuleCost:
    """Sum what has an estimate, loop bodies times their trips; `dump` and `constants` come from `aot_compile(dump=…)`."""
    attribution = Attribution(module)
    costs = {cost.instruction: cost for cost in kernel_costs(module, dump, model, constants)}
    ops: list[WeightedOp] = []
    uncosted: dict[str, int] = {}
    fusions_us = kernels_us = written = covered = 0.0
    for computation, instruction, count in attribution.executed():
        if instruction.opcode in HIDDEN or instruction.opcode in _TRANSFERS:
            continue
        row = op_row(attribution, computation, instruction, count.times)
        written += row.output_bytes * count.times
        found = _CYCLES.search(instruction.text)
        if is_kernel(instruction) and instruction.name in costs:
            us = costs[instruction.name].predicted_us * count.times
            kernels_us += us
        elif found:
            us = int(found.group(1)) * count.times / (model.clock_ghz * 1e3)
            fusions_us += us
        else:
            what = instruction.target or instruction.opcode
            uncosted[what] = uncosted.get(what, 0) + count.times
            continue
        covered += row.output_bytes * count.times
        origins = attribution.origins(computation, instruction)
        ops.append(WeightedOp(row.name, module.name, row.op_class, without_layout(instruction.shape), row.kernel, us, origins))
    total = fusions_us + kernels_us
    blind = ", ".join(f"{times} x {what}" for what, times in sorted(uncosted.items()))
    ops.sort(key=lambda op: (-op.weight, op.name))
    return ModuleCost(
        total, total * (1 - model.spread_frac), total * (1 + model.spread_frac), fusions_us, tuple(costs.values()), tuple(sorted(uncosted.items())),
        covered / written if written else 1.0, Weighed("us", True, tuple(ops), f"without {blind}" if blind else ""),
    )  # fmt: skip
