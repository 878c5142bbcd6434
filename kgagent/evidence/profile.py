"""A profile as records: executions, operations with self time, counters, kernel stages. What a trace lacks is absent, never 0.

Times are kept in picoseconds, as the device wrote them: a float of nanoseconds loses the last digits.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpTime:
    """One HLO operation of one module, all its occurrences on one device."""

    name: str
    module: str
    occurrences: int
    total_ps: int
    self_ps: int  # without what ran inside it
    flops: float | None  # the trace's own count, one occurrence; blind inside custom calls
    bytes_accessed: float | None
    expression: str  # HLO text as the trace shortens it; "" on a CPU

    @property
    def self_us(self) -> float:
        return self.self_ps / 1e6


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a module on one device."""

    module: str
    start_ns: float
    duration_ps: int


@dataclass(frozen=True, slots=True)
class Counter:
    """A functional unit's or other counter; the unit of measure is the trace's own word for it."""

    name: str
    measure: str
    samples: int
    mean: float
    largest: float


@dataclass(frozen=True, slots=True)
class Stage:
    """A named stage of a kernel's own trace (Mosaic `ep_*`), all its occurrences."""

    name: str
    occurrences: int
    total_ps: int


@dataclass(frozen=True, slots=True)
class Device:
    """One device plane, or the host's CPU where XLA ran there."""

    name: str
    device_type: str  # "TPU v6 Lite", "cpu"
    peak_tflops: float | None  # as the trace says; peak for MFU stays the datasheet's
    peak_hbm_gb_s: float | None
    executions: tuple[Execution, ...]
    ops: tuple[OpTime, ...]  # most self time first
    counters: tuple[Counter, ...]
    stages: tuple[Stage, ...]
    absent: tuple[str, ...]  # what this trace doesn't hold for the device

    @property
    def op_ps(self) -> int:
        """Time in operations; equals the sum of self times."""
        return sum(op.self_ps for op in self.ops)

    @property
    def busy_ps(self) -> int:
        return sum(execution.duration_ps for execution in self.executions)


@dataclass(frozen=True, slots=True)
class Step:
    """A step the program marked (`jax.profiler.StepTraceAnnotation`)."""

    number: int
    name: str
    start_ns: float
    duration_us: float


@dataclass(frozen=True, slots=True)
class HostActivity:
    """Host events of one name, all threads; they nest, so times of two names may cover the same moment."""

    name: str
    count: int
    total_us: float
    idle_us: float  # of it, while no device ran


@dataclass(frozen=True, slots=True)
class Host:
    """The host's side of a session."""

    events: int
    compilations_us: tuple[float, ...]  # each call into the compiler
    steps: tuple[Step, ...]
    activities: tuple[HostActivity, ...]  # most time in idle gaps first
    activities_left_out: int
    to_device_us: float | None  # in transfers to the device; None where no event names one
    idle_us: float  # between the first and the last execution, while no device ran


@dataclass(frozen=True, slots=True)
class Profile:
    """One profiling session, all hosts."""

    path: str
    hosts: tuple[str, ...]
    devices: tuple[Device, ...]
    jax: str
    absent: tuple[str, ...]
    host: Host | None = None

    def ops(self) -> tuple[OpTime, ...]:
        """Operations of all devices, most self time first."""
        return tuple(sorted((op for device in self.devices for op in device.ops), key=lambda op: (-op.self_ps, op.name)))
