"""Predicted time of Pallas kernels, from what the compiler scheduled and what the kernel's own scalars say. Never a measurement.

T = steps x (overhead + max(weighted bundles / clock, DMA bytes a step / bandwidth)): a bundle counts as often as its `pl.when` fires,
a block as often as its index moves, and an operand that already lies in VMEM costs no traffic.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from kgagent.errors import ConfigError
from kgagent.evidence.grid import GridRun, operand_values, run_grid
from kgagent.evidence.hlo import Computation, Instruction, Module
from kgagent.evidence.kernels import KernelCall, kernel_calls
from kgagent.evidence.llo import Conditional, Loop, Schedule, dump_files, read_schedule
from kgagent.evidence.shapes import leaves
from kgagent.knowledge.chips import chip_for

_VMEM = 1


@dataclass(frozen=True, slots=True)
class Model:
    """The constants for one chip."""

    chip: str
    clock_ghz: float
    overhead_us: float
    hbm_bytes_per_us: float
    spread_frac: float


@dataclass(frozen=True, slots=True)
class KernelCost:
    """One launch's predicted time; `unknown` says which parts were taken at their most, so that the truth can only be less."""

    kernel: str
    instruction: str
    predicted_us: float
    low_us: float
    high_us: float
    bound: str  # compute, dma
    steps: int
    weighted_bundles: float  # a step
    compute_us: float  # all steps, without overhead
    dma_us: float
    dma_bytes: int
    line_us: tuple[tuple[str, float], ...]  # path:line, heaviest first; with "" they sum to the prediction
    unknown: tuple[str, ...]


@cache
def _constants() -> dict[str, Any]:
    return tomllib.loads(resources.files("kgagent.compiler").joinpath("kernel_model.toml").read_text(encoding="utf-8"))


def model_for(topology: str) -> Model:
    """The constants of a topology's chip; `ConfigError` for a chip without a fitted clock."""
    chip, constants = chip_for(topology), _constants()
    clock = constants["clock_ghz"].get(chip.name)
    if clock is None:
        raise ConfigError(f"no clock for {chip.name}", where="kgagent/compiler/kernel_model.toml", hint="calibrate with measured rows of that chip")
    return Model(chip.name, float(clock), float(constants["overhead_us"]), chip.hbm_gb_per_s.value * 1e3, float(constants["spread_frac"]))


def kernel_costs(module: Module, dump: Path, model: Model, constants: Mapping[str, str]) -> tuple[KernelCost, ...]:
    """Costs of every kernel launch of a module compiled with `dump=`; `constants` are `Compiled.constants`."""
    schedules = {files.instruction: files for files in dump_files(dump)}
    out = []
    for call in kernel_calls(module):
        files = schedules.get(call.instruction.name)
        if files is not None:
            out.append(kernel_cost(call, module.computations[call.computation], read_schedule(files), model, constants))
    return tuple(out)


def kernel_cost(call: KernelCall, computation: Computation, schedule: Schedule, model: Model, constants: Mapping[str, str]) -> KernelCost:
    """One launch's cost from its schedule and its grid."""
    run = run_grid(call.instruction, operand_values(computation, call.instruction, constants))
    unknown: list[str] = []
    loop = max(schedule.loops, key=lambda loop: loop.bundles, default=None)
    steps = run.steps if run else (loop.bound if loop and loop.bound else 1)
    weights = _weights(schedule, run, loop, unknown)
    per_step = sum(weights)
    dma_bytes = _traffic(call.instruction, computation, run, unknown)
    compute_us = steps * per_step / (model.clock_ghz * 1e3)
    dma_us = dma_bytes / model.hbm_bytes_per_us
    predicted = steps * model.overhead_us + max(compute_us, dma_us)
    lines = _by_line(schedule, weights, predicted)
    return KernelCost(
        call.kernel, call.instruction.name, predicted, predicted * (1 - model.spread_frac), predicted * (1 + model.spread_frac),
        "compute" if compute_us >= dma_us else "dma", steps, per_step, compute_us, dma_us, dma_bytes, lines, tuple(dict.fromkeys(unknown)),
    )  # fmt: skip


def _weights(schedule: Schedule, run: GridRun | None, loop: Loop | None, unknown: list[str]) -> list[float]:
    """How often each bundle runs in an average grid step."""
    shares: dict[str, list[float | None]] = defaultdict(list)
    for condition in run.conditions if run else ():
        for place in condition.places[:1]:
            shares[place].append(condition.share)
    weights = [0.0] * schedule.bundles
    first, last = (loop.first, loop.last) if loop else (0, schedule.bundles - 1)
    for at in range(first, min(last + 1, schedule.bundles)):
        weights[at] = 1.0
    for region in sorted(schedule.conditionals, key=lambda region: -region.bundles):
        share = _share(region, shares, unknown)
        if share is not None:
            for at in range(region.first, min(region.last + 1, schedule.bundles)):
                weights[at] = min(weights[at], share)
    for inner in schedule.loops:
        if loop and inner is not loop and inner.first >= loop.first and inner.last <= loop.last:
            if inner.bound is None:
                unknown.append("trips of an inner loop")
            for at in range(inner.first, min(inner.last + 1, schedule.bundles)):
                weights[at] *= inner.bound or 1
    return weights


def _share(region: Conditional, shares: Mapping[str, list[float | None]], unknown: list[str]) -> float | None:
    """A region's share; None where it is the pipeline's own guard, which holds in every step."""
    found = shares.get(region.place)
    if not found:
        return None
    known = [share for share in found if share is not None]
    if len(known) < len(found):
        unknown.append(f"how often {region.place} fires")
        return 1.0
    return max(known)


def _traffic(call: Instruction, computation: Computation, run: GridRun | None, unknown: list[str]) -> int:
    """Bytes between HBM and VMEM in one launch."""
    results = leaves(call.shape)
    operands = [leaf for name in call.operands if (found := computation.by_name.get(name)) is not None for leaf in leaves(found.shape)[:1]]
    if run is None:  # no grid: whatever lies in HBM is at least read or written once
        unknown.append("how often blocks are fetched")
        return sum(leaf.data_bytes for leaf in (*operands, *results) if leaf.space != _VMEM)
    inputs = len(run.windows) - len(results)
    spaces = [leaf.space for leaf in operands[len(operands) - inputs :]] + [leaf.space for leaf in results]
    total = 0
    for window, space in zip(run.windows, spaces, strict=False):
        if space == _VMEM:
            continue
        if window.moves is None:
            unknown.append("how often blocks are fetched")
        total += window.block_bytes * (window.moves if window.moves is not None else run.steps)
    return total


def _by_line(schedule: Schedule, weights: list[float], predicted: float) -> tuple[tuple[str, float], ...]:
    """The prediction shared over lines by weighted bundles; "" holds what has no line."""
    sums: dict[str, float] = defaultdict(float)
    for bundle, weight in zip(schedule.bundle_places, weights, strict=True):
        for place in bundle:
            sums[place] += weight / len(bundle)
        if not bundle:
            sums[""] += weight
    total = sum(sums.values()) or 1.0
    return tuple(sorted(((place, predicted * weight / total) for place, weight in sums.items() if weight), key=lambda item: (-item[1], item[0])))
