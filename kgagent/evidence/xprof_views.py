"""xprof's roofline, memory profile and input pipeline as typed records: what a trace lacks is None or told in `absent`, never 0.

xprof fills a figure it doesn't know with 0 and a bound it doesn't know with "Unknown"; here both are None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgagent.evidence.hlo import Module
from kgagent.evidence.liveness import Peak, memory_peak
from kgagent.evidence.profile import Device, HostActivity, Profile
from kgagent.evidence.weigh import Weighed
from kgagent.evidence.xprof_tables import Table, xprof_json, xprof_tables

_KERNEL_BLIND = "XLA's cost model sees no FLOPs and no bytes inside a custom call: Pallas kernels stand at no rate and no bound"
_HAND_BLIND = "FLOPs and bytes are XLA's estimates for the HLO, not counted by the chip; data kept in VMEM between operations still counts as read"
_PEAK_BLIND = "peaks are the trace's own; peak for MFU stays the datasheet's"


@dataclass(frozen=True, slots=True)
class RooflineOp:
    """One operation against the roofline; None where xprof has no figure."""

    name: str
    category: str
    occurrences: int
    self_us: float
    gflops_per_s: float | None
    hbm_gib_per_s: float | None
    flops_per_byte: float | None
    bound_by: str | None
    roofline_frac: float | None


@dataclass(frozen=True, slots=True)
class Roofline:
    """Operations by time with what bounds them, and what the model can't see."""

    device_type: str | None
    peak_gflops_per_s: float | None
    peak_hbm_gib_per_s: float | None
    ridge_flops_per_byte: float | None
    ops: tuple[RooflineOp, ...]
    blind: tuple[str, ...]
    blind_frac: float | None  # share of op time without any rate
    absent: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Allocation:
    """Something that was allocated when memory was fullest, as the runtime names it."""

    name: str
    shape: str
    region: str
    allocation_bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class AllocatorPeak:
    """The fullest moment of one allocator in the traced window."""

    allocator: str
    capacity_bytes: int | None
    peak_bytes: int
    heap_bytes: int
    stack_bytes: int
    fragmentation_frac: float | None
    allocations: tuple[Allocation, ...]  # largest first


@dataclass(frozen=True, slots=True)
class ModuleMemory:
    """What a module's HLO says memory is made of at its fullest, by source line; static, never measured."""

    module: str
    peak: Peak


@dataclass(frozen=True, slots=True)
class Memory:
    """Measured peaks by allocator, and the largest buffers by line from the modules' HLO."""

    allocators: tuple[AllocatorPeak, ...]
    modules: tuple[ModuleMemory, ...]
    absent: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InputOp:
    """One operation of the host's input pipeline, as xprof groups it."""

    name: str
    category: str
    count: int
    total_ms: float
    self_ms: float


@dataclass(frozen=True, slots=True)
class InputPipeline:
    """Whether steps wait for their input, and what the host did while no device ran."""

    steps: int | None
    step_ms: float | None
    input_frac: float | None  # share of step time waiting for input
    conclusion: str | None
    ops: tuple[InputOp, ...]
    idle_us: float | None
    to_device_us: float | None
    activities: tuple[HostActivity, ...]  # most time in idle gaps first
    absent: tuple[str, ...]


def roofline(trace: Path, weighed: Weighed | None = None) -> Roofline:
    """xprof's roofline of a trace, with its blind spots; `weighed` tells which operations are kernels."""
    found = next(iter(xprof_tables(trace, "roofline_model")), None)
    rows = [row for row in _rows(found) if row["step"] == "Total" and row["include_infeed_outfeed"] and row["category"] not in ("Program", "IDLE")]
    facts = dict(found.properties) if found is not None else {}
    ops = tuple(_roofline_op(row) for row in rows)
    total = sum(op.self_us for op in ops)
    unseen = sum(op.self_us for op in ops if op.gflops_per_s is None and op.hbm_gib_per_s is None)
    kernels = {op.name for op in weighed.ops if op.kernel} if weighed is not None else {op.name for op in ops if op.category == "custom-call"}
    blind = [_HAND_BLIND, _PEAK_BLIND] if ops else []
    if any(op.name in kernels for op in ops):
        blind.insert(0, _KERNEL_BLIND)
    absent = () if ops else ("a device plane with operations: xprof knows no roofline for a CPU",)
    return Roofline(
        facts.get("device_type") or None, _known(facts.get("peak_flop_rate")), _known(facts.get("peak_hbm_bw")), _known(facts.get("hbm_ridge_point")),
        ops, tuple(blind), unseen / total if total else None, absent,
    )  # fmt: skip


def _roofline_op(row: Mapping[str, Any]) -> RooflineOp:
    bound = str(row.get("bound_by") or "")
    return RooflineOp(
        str(row["operation"]), str(row["category"]), int(row["occurrences"]), float(row["total_self_time"]), _known(row.get("measured_flop_rate")),
        _known(row.get("hbm_bw")), _known(row.get("hbm_operational_intensity")), None if bound in ("", "Unknown") else bound,
        _known(row.get("roofline_efficiency")),
    )  # fmt: skip


def _rows(table: Table | None) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=False)) for row in table.rows] if table is not None else []


def _known(value: object) -> float | None:
    """A figure; None for the 0 that stands for one xprof doesn't know."""
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number or None


def memory(modules: Mapping[str, Module], trace: Path | None = None) -> Memory:
    """Peaks that the trace's allocator events tell, and the peak of every scheduled module by line."""
    answer = xprof_json(trace, "memory_profile") if trace is not None else None
    told = answer.get("memoryProfilePerAllocator", {}) if isinstance(answer, dict) else {}
    allocators = tuple(_allocator(name, facts) for name, facts in sorted(told.items()))
    found = tuple(ModuleMemory(name, memory_peak(module)) for name, module in sorted(modules.items()) if module.is_scheduled)
    absent = [] if allocators else ["allocator events"]
    absent += [f"a schedule of {name}" for name, module in sorted(modules.items()) if not module.is_scheduled]
    return Memory(allocators, found, tuple(absent) if modules else (*absent, "HLO of a module that ran"))


def _allocator(name: str, facts: Mapping[str, Any]) -> AllocatorPeak:
    summary = facts.get("profileSummary", {})
    stats = summary.get("peakStats", {})
    sources = {"snapshotIndex": facts.get("memoryProfileSnapshots", ()), "specialIndex": facts.get("specialAllocations", ())}
    allocations = []
    for active in facts.get("activeAllocations", ()):
        for which, rows in sources.items():
            index = int(active.get(which, -1))
            if 0 <= index < len(rows):
                allocations.append(_allocation(rows[index].get("activityMetadata", rows[index]), int(active.get("numOccurrences", 1))))
                break
    capacity = int(summary.get("memoryCapacity", 0)) or None
    fragmentation = stats.get("fragmentation")
    return AllocatorPeak(
        name, capacity, int(stats.get("peakBytesInUse", 0)), int(stats.get("heapAllocatedBytes", 0)), int(stats.get("stackReservedBytes", 0)),
        float(fragmentation) if fragmentation is not None else None,
        tuple(sorted(allocations, key=lambda a: (-a.allocation_bytes * a.count, a.name))),
    )  # fmt: skip


def _allocation(facts: Mapping[str, Any], count: int) -> Allocation:
    name, shape = str(facts.get("tfOpName", "")), str(facts.get("tensorShape", ""))
    known = "" if shape == "unknown" else shape
    return Allocation("unnamed" if name in ("", "dummy") else name, known, str(facts.get("regionType", "")), int(facts.get("allocationBytes", 0)), count)


def input_pipeline(trace: Path, profile: Profile) -> InputPipeline:
    """xprof's judgement of the input pipeline where steps are marked, beside what the host did in idle gaps, which needs no marks."""
    tables = xprof_tables(trace, "input_pipeline_analyzer")
    steps = next((table for table in tables if "stepnum" in table.columns), None)
    facts = dict(steps.properties) if steps is not None else {}
    marked = steps is not None and bool(steps.rows)
    ops = tuple(_input_op(row) for table in tables if "opName" in table.columns for row in _rows(table))
    host = profile.host
    absent = [] if marked else ["step markers (jax.profiler.StepTraceAnnotation): no share of step time can be given"]
    waits = _share_of_input(facts) if marked else None
    told = bool(ops or waits)  # xprof says 0% where it knows no input operation at all
    absent += [] if told else ["input operations that xprof knows: JAX hands over arrays, and waiting for them is idle time"]
    absent += [] if host is not None else ["host events"]
    return InputPipeline(
        len(steps.rows) if steps is not None and marked else None, _number(facts.get("steptime_ms_average")) if marked else None,
        waits if told else None, _plain(facts.get("input_conclusion", "")) or None if told and marked else None, ops,
        host.idle_us if host is not None and _ran_twice(profile.devices) else None, host.to_device_us if host is not None else None,
        host.activities if host is not None else (), tuple(absent),
    )  # fmt: skip


def _share_of_input(facts: Mapping[str, str]) -> float | None:
    """xprof gives a CPU's or GPU's input time in milliseconds, a TPU's in percent."""
    percent = _number(facts.get("infeed_percent_average"))
    if percent is not None:
        return percent / 100
    waits, step = _number(facts.get("infeed_time_ms_avg")), _number(facts.get("steptime_ms_average"))
    return waits / step if waits is not None and step else None


def _ran_twice(devices: Sequence[Device]) -> bool:
    """Whether there are two executions between which a device can idle."""
    return sum(len(device.executions) for device in devices) > 1


def _input_op(row: Mapping[str, Any]) -> InputOp:
    count, total_ms, self_ms = (row.get(name) or 0 for name in ("count", "timeInMs", "selfTimeInMs"))
    return InputOp(str(row.get("opName", "")), str(row.get("category", "")), int(count), float(total_ms), float(self_ms))


def _number(value: object) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None


def _plain(text: str) -> str:
    return re.sub(r"<[^>]*>", "", text).strip()
