"""Views of a profile as typed functions, for every face: overview, kernels, collectives, an instruction's neighbourhood."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from kgagent.errors import UnknownThing
from kgagent.evidence.cost import COLLECTIVES, base_opcode
from kgagent.evidence.hlo import Module
from kgagent.evidence.profile import Counter, Profile, Stage
from kgagent.evidence.shapes import without_layout
from kgagent.evidence.weigh import Weighed

_COPIES = ("copy-", "slice-", "async-")


@dataclass(frozen=True, slots=True)
class DeviceOverview:
    """One device's time; None where the trace doesn't say."""

    device: str
    device_type: str
    executions: int
    median_step_us: float | None  # of marked steps, else of one execution of a module
    busy_us: float
    idle_us: float | None  # between the first and the last execution
    op_us: float
    compile_us: float | None  # of the whole host, in calls into the compiler; None where the trace has none
    compilations: int | None
    absent: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelView:
    """One Pallas kernel in a profile. Stages and counters are the device's own, so only given where it ran one kernel alone."""

    kernel: str
    ops: tuple[str, ...]
    invocations: int
    total_us: float
    share: float
    stages: tuple[Stage, ...]
    wait_frac: float | None  # share of stage time spent waiting for DMA
    counters: tuple[Counter, ...]


@dataclass(frozen=True, slots=True)
class ExposedTransfer:
    """Time a device stood still for a collective or an asynchronous copy: the self time of what waits for it."""

    name: str
    kind: str
    exposed_us: float


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An instruction beside another: what it reads or who reads it."""

    direction: str  # operand, user, caller, called
    name: str
    opcode: str
    shape: str


def overview(profile: Profile) -> tuple[DeviceOverview, ...]:
    """Step, busy and idle time of every device, and what the host spent compiling. Marked steps win over executions of a module."""
    out = []
    compiled = profile.host.compilations_us if profile.host is not None else ()
    marked = [step.duration_us for step in profile.host.steps] if profile.host is not None else []
    for device in profile.devices:
        runs = device.executions
        span_us = (max(r.start_ns + r.duration_ps / 1e3 for r in runs) - min(r.start_ns for r in runs)) / 1e3 if runs else None
        out.append(
            DeviceOverview(
                device.name,
                device.device_type,
                len(runs),
                median(marked) if marked else median(r.duration_ps for r in runs) / 1e6 if runs else None,
                device.busy_ps / 1e6,
                max(0.0, span_us - device.busy_ps / 1e6) if span_us is not None else None,
                device.op_ps / 1e6,
                sum(compiled) if compiled else None,
                len(compiled) or None,
                device.absent,
            )
        )
    return tuple(out)


def kernels(profile: Profile, weighed: Weighed) -> tuple[KernelView, ...]:
    """Pallas kernels by time, with their Mosaic stages and the units' utilisation where they can be told apart."""
    ops: dict[str, set[str]] = defaultdict(set)
    times: dict[str, float] = defaultdict(float)
    for op in weighed.ops:
        if op.kernel:
            ops[op.kernel].add(op.name)
            times[op.kernel] += op.weight
    out = []
    for kernel, names in ops.items():
        invocations = sum(op.occurrences for device in profile.devices for op in device.ops if op.name in names)
        alone = len(ops) == 1
        stages = tuple(stage for device in profile.devices for stage in device.stages) if alone else ()
        counters = tuple(counter for device in profile.devices for counter in device.counters) if alone else ()
        own = [stage for stage in stages if stage.name.startswith("ep_")]
        total = sum(stage.total_ps for stage in own)
        wait = sum(stage.total_ps for stage in own if "wait" in stage.name) / total if total else None
        out.append(KernelView(kernel, tuple(sorted(names)), invocations, times[kernel], times[kernel] / (weighed.total or 1), stages, wait, counters))
    return tuple(sorted(out, key=lambda view: (-view.total_us, view.kernel)))


@dataclass(frozen=True, slots=True)
class DeviceCounter:
    """A counter with the device it was read on."""

    device: str
    counter: Counter


def counters(profile: Profile) -> tuple[DeviceCounter, ...]:
    """Counters of all devices, as the trace names them."""
    return tuple(DeviceCounter(device.name, counter) for device in profile.devices for counter in device.counters)


def exposed_transfers(profile: Profile, modules: dict[str, Module]) -> tuple[ExposedTransfer, ...]:
    """Collectives and asynchronous copies by exposed time: a done's self time, or all of a synchronous collective's."""
    out: dict[tuple[str, str], float] = defaultdict(float)
    opcodes = {(name, i.name): i.opcode for name, module in modules.items() for _, i in module.instructions()}
    for op in profile.ops():
        opcode = opcodes.get((op.module, op.name), "")
        kind = base_opcode(opcode)
        waits = opcode.endswith("-done") and (kind in COLLECTIVES or opcode.startswith(_COPIES))
        if waits or opcode in COLLECTIVES:
            out[op.name, kind] += op.self_us
    return tuple(sorted((ExposedTransfer(name, kind, us) for (name, kind), us in out.items()), key=lambda t: (-t.exposed_us, t.name)))


def neighbourhood(module: Module, name: str) -> tuple[Neighbour, ...]:
    """What an instruction reads, who reads it, and what it calls; `UnknownThing` names those that sound alike."""
    home = next((c for c in module.computations.values() if name in c.by_name), None)
    if home is None:
        near = [i.name for _, i in module.instructions() if name.split(".")[0] in i.name][:5]
        raise UnknownThing(f"no instruction {name!r} in {module.name}", hint=f"for example {', '.join(near)}" if near else "")
    found = home.by_name[name]
    out = [Neighbour("operand", o, home.by_name[o].opcode, without_layout(home.by_name[o].shape)) for o in found.operands if o in home.by_name]
    out += [Neighbour("user", i.name, i.opcode, without_layout(i.shape)) for i in home.instructions if name in i.operands]
    out += [Neighbour("called", callee, role, "") for role, callee in found.called]
    out += [Neighbour("caller", i.name, i.opcode, without_layout(i.shape)) for _, i in module.instructions() if home.name in {c for _, c in i.called}]
    return tuple(out)
