"""Read `*.xplane.pb` with jaxlib's own reader: TPU planes, CPU planes with `hlo_op`, several hosts; no TensorFlow."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from kgagent.errors import EvidenceError, Unavailable
from kgagent.evidence.host import host_of, idle_gaps, merged
from kgagent.evidence.profile import Counter, Device, Execution, Host, OpTime, Profile, Stage
from kgagent.evidence.wire import fields, nested, text

_INSTRUCTION = re.compile(r"%?([^\s=]+) = ")
_ID, _PLANE_NAME, _LAST_FIELD, _FIELDS_LOOKED_AT = 1, 2, 6, 64  # of XPlane: id, name, lines, event_metadata, stat_metadata, stats
MOSAIC_LINE, OPS_LINE, MODULES_LINE, COUNTERS_LINE = "XLA TraceMe", "XLA Ops", "XLA Modules", "_counters_"


@dataclass(slots=True)
class _Tally:
    occurrences: int = 0
    total_ps: int = 0
    self_ps: int = 0
    flops: float | None = None
    bytes_accessed: float | None = None
    expression: str = ""


@dataclass(slots=True)
class _Span:
    key: tuple[str, str]
    start_ps: int
    end_ps: int
    inner_ps: int = 0
    stats: dict[str, Any] = field(default_factory=dict)
    expression: str = ""


def trace_files(path: Path) -> tuple[Path, ...]:
    """The traces of one session: the file itself, or those of a folder's newest run, one a host."""
    if path.is_file():
        return (path,)
    if not path.is_dir():
        raise EvidenceError("no such profile", where=str(path), hint="give a *.xplane.pb or the folder given to jax.profiler.trace")
    found = sorted(path.rglob("*.xplane.pb"))
    if not found:
        raise EvidenceError("no *.xplane.pb below that folder", where=str(path), hint="profile with jax.profiler.trace(FOLDER)")
    newest = max(file.parent for file in found)  # runs are named by their time
    return tuple(file for file in found if file.parent == newest)


def read_profile(path: Path) -> Profile:
    """A session's profile; `EvidenceError` for what is no trace, is cut off, or holds no XLA operation."""
    files = trace_files(path)
    devices: list[Device] = []
    sides: list[Host] = []
    jax = ""
    for file in files:
        with warnings.catch_warnings():  # jaxlib's iterators lack a module name, which newer Pythons deprecate
            warnings.simplefilter("ignore", DeprecationWarning)
            found, host, version = _planes(_load(file))
        devices += found
        sides += host
        jax = jax or version
    devices = [device for device in devices if device.ops or device.executions]
    if not devices:
        raise EvidenceError("the trace holds no XLA operation", where=str(path), hint="run the jitted function inside the trace, and wait for its result")
    whole = merged(sides)
    absent = (*(() if jax else ("jax version",)), *(() if whole else ("host events",)))
    return Profile(str(path), tuple(file.name.removesuffix(".xplane.pb") for file in files), tuple(devices), jax, absent, whole)


def _planes(data: Any) -> tuple[list[Device], list[Host], str]:
    """The devices of one host's trace, its own side, and its jax version."""
    devices: list[Device] = []
    threads: list[Any] = []
    jax = ""
    for plane in data.planes:
        facts = dict(plane.stats)
        jax = jax or str(facts.get("jax_version", ""))
        if plane.name.startswith("/device:") and "CUSTOM" not in plane.name:
            devices.append(_device(plane, facts))
        elif plane.name == "/host:CPU":
            devices.extend(_cpu(plane))
            threads += plane.lines
    host = host_of(threads, idle_gaps(devices)) if threads else None
    return devices, [host] if host is not None and host.events else [], jax


def _load(file: Path) -> Any:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise EvidenceError(f"the profile can't be read: {error.strerror or error}", where=str(file)) from error
    if not raw:
        raise EvidenceError("the profile is empty", where=str(file), hint="profile again; the writer may have been killed")
    for plane in nested(raw, 1, where=str(file)):  # the reader's own message doesn't say whether it is cut or foreign
        if not _is_plane(plane, str(file)):
            raise EvidenceError("not a profile: a protobuf of another kind", where=str(file), hint="give the *.xplane.pb that jax.profiler wrote")
    reader = _reader()
    try:
        return reader.from_serialized_xspace(raw)
    except (RuntimeError, ValueError) as error:
        raise EvidenceError(f"not a profile: {error}", where=str(file), hint="give the *.xplane.pb that jax.profiler wrote") from error


def _is_plane(message: memoryview, where: str) -> bool:
    """XPlane: a number, a name, then messages; told by its first fields, since the reader prints what it can't parse to the terminal."""
    for number, value in islice(fields(message, where=where), _FIELDS_LOOKED_AT):
        if number > _LAST_FIELD or (number == _ID) != isinstance(value, int):
            return False
        if number == _PLANE_NAME and not text(value).isprintable():
            return False
    return True


def _reader() -> Any:
    try:
        from jaxlib._profile_data import ProfileData  # jax.profiler.ProfileData itself, without two seconds of importing jax
    except ImportError:
        try:
            from jax.profiler import ProfileData
        except ImportError as error:
            raise Unavailable("reading profiles needs jax", hint='pip install "kgagent[jax]"') from error
    return ProfileData


def _device(plane: Any, facts: dict[str, Any]) -> Device:
    lines = {line.name: list(line.events) for line in plane.lines}
    executions = [Execution(_module(event.name), event.start_ns, _duration_ps(event, dict(event.stats))) for event in lines.get(MODULES_LINE, ())]
    executions.sort(key=lambda execution: execution.start_ns)
    spans = []
    for event in lines.get(OPS_LINE, ()):
        stats = dict(event.stats)
        start = _start_ps(event, stats)
        found = _INSTRUCTION.match(event.name)
        module = _running(executions, event.start_ns)
        spans.append(_Span((module, found.group(1) if found else event.name), start, start + _duration_ps(event, stats), stats=stats, expression=event.name))
    absent = [what for what, line in (("operations", OPS_LINE), ("executions", MODULES_LINE), ("counters", COUNTERS_LINE)) if not lines.get(line)]
    if not lines.get(MOSAIC_LINE):
        absent.append("kernel stages")
    return Device(
        plane.name, str(facts.get("device_type_string", "")), _number(facts.get("peak_teraflops_per_second")),
        _number(facts.get("peak_hbm_bw_gigabytes_per_second")), tuple(executions), _ops([spans]), _counters(lines.get(COUNTERS_LINE, ())),
        _stages(lines.get(MOSAIC_LINE, ())), tuple(absent),
    )  # fmt: skip


def _cpu(plane: Any) -> Iterator[Device]:
    """The host as a device: events that name their HLO operation, thread by thread."""
    threads: list[list[_Span]] = []
    runs: dict[tuple[str, object], list[int]] = {}
    for line in plane.lines:
        spans = []
        for event in line.events:
            stats = dict(event.stats)
            name = stats.get("hlo_op")
            if name is None or event.name.startswith("end: "):
                continue
            module = str(stats.get("hlo_module", ""))
            start, duration = round(event.start_ns * 1000), round(event.duration_ns * 1000)
            spans.append(_Span((module, str(name)), start, start + duration))
            run = runs.setdefault((module, stats.get("run_id")), [start, start + duration])
            run[0], run[1] = min(run[0], start), max(run[1], start + duration)
        if spans:
            threads.append(spans)
    if threads:
        executions = sorted((Execution(module, start / 1000, end - start) for (module, _), (start, end) in runs.items()), key=lambda e: e.start_ns)
        absent = ("peaks", "counters", "kernel stages", "flops", "bytes")
        yield Device(plane.name, "cpu", None, None, tuple(executions), _ops(threads), (), (), absent)


def _ops(threads: Iterable[list[_Span]]) -> tuple[OpTime, ...]:
    """Occurrences summed by operation; what runs inside another on the same line is taken from its self time."""
    tallies: dict[tuple[str, str], _Tally] = defaultdict(_Tally)
    for spans in threads:
        spans.sort(key=lambda span: (span.start_ps, -span.end_ps))
        stack: list[_Span] = []
        for span in spans:
            while stack and stack[-1].end_ps <= span.start_ps:
                stack.pop()
            if stack:
                span.end_ps = min(span.end_ps, stack[-1].end_ps)  # rounding may let a child outlive its parent
                stack[-1].inner_ps += span.end_ps - span.start_ps
            stack.append(span)
        for span in spans:
            tally = tallies[span.key]
            tally.occurrences += 1
            tally.total_ps += span.end_ps - span.start_ps
            tally.self_ps += span.end_ps - span.start_ps - span.inner_ps
            tally.flops = tally.flops if tally.flops is not None else _number(span.stats.get("flops"))
            tally.bytes_accessed = tally.bytes_accessed if tally.bytes_accessed is not None else _number(span.stats.get("bytes_accessed")) or None
            tally.expression = tally.expression or span.expression
    out = [OpTime(name, module, t.occurrences, t.total_ps, t.self_ps, t.flops, t.bytes_accessed, t.expression) for (module, name), t in tallies.items()]
    return tuple(sorted(out, key=lambda op: (-op.self_ps, op.module, op.name)))


def _module(name: str) -> str:
    """`jit_f(173)` as `jit_f`."""
    return name.partition("(")[0]


def _running(executions: list[Execution], at_ns: float) -> str:
    """The module whose run holds a moment; "" where none does."""
    for execution in reversed(executions):
        if execution.start_ns <= at_ns:
            return execution.module
    return ""


def _duration_ps(event: Any, stats: dict[str, Any]) -> int:
    exact = stats.get("device_duration_ps")
    return int(exact) if exact is not None else round(event.duration_ns * 1000)


def _start_ps(event: Any, stats: dict[str, Any]) -> int:
    exact = stats.get("device_offset_ps")
    return int(exact) if exact is not None else round(event.start_ns * 1000)


def _number(value: object) -> float | None:
    if value is None:
        return None
    try:
        return float(str(value))
    except ValueError:
        return None


def _counters(events: Iterable[Any]) -> tuple[Counter, ...]:
    samples: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        for measure, value in event.stats:
            number = _number(value)
            if number is not None:
                samples[event.name, str(measure)].append(number)
    return tuple(Counter(name, measure, len(v), sum(v) / len(v), max(v)) for (name, measure), v in sorted(samples.items()))


def _stages(events: Iterable[Any]) -> tuple[Stage, ...]:
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for event in events:
        totals[event.name][0] += 1
        totals[event.name][1] += _duration_ps(event, dict(event.stats))
    return tuple(sorted((Stage(name, count, total) for name, (count, total) in totals.items()), key=lambda s: (-s.total_ps, s.name)))
