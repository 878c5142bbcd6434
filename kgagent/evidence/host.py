"""The host's side of a trace: compilations, marked steps, and what the host did while a device stood still.

A trace holds a million host events, so they are summed while they are read and never kept.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kgagent.evidence.profile import Device, Host, HostActivity, Step

# jax annotates the call into the compiler so; the spans below it are the compiler's own and would count twice
_COMPILE = frozenset(("backend_compile_and_load", "backend_compile"))
_TO_DEVICE = re.compile(r"TransferToDevice|BufferFromHost|HostToDevice|InfeedEnqueue|TransferLiteralToInfeed|TransferH2D|\bH2D\b", re.IGNORECASE)
_NOISE = re.compile(r"\$|ThreadpoolListener|MutexLock|end: |ThunkExecutor|Slinky")  # python's own calls, and locks taken ten thousand times
ACTIVITIES_KEPT = 40


def idle_gaps(devices: Iterable[Device]) -> list[tuple[float, float]]:
    """Spans in ns, between the first and the last execution, in which no device ran anything."""
    spans = sorted((run.start_ns, run.start_ns + run.duration_ps / 1e3) for device in devices for run in device.executions)
    gaps = []
    end = spans[0][1] if spans else 0.0
    for start, stop in spans[1:]:
        if start > end:
            gaps.append((end, start))
        end = max(end, stop)
    return gaps


def host_of(lines: Iterable[Any], gaps: Sequence[tuple[float, float]]) -> Host:
    """Read the threads of a host's plane."""
    compilations: list[float] = []
    steps: list[Step] = []
    count: dict[str, int] = defaultdict(int)
    total: dict[str, float] = defaultdict(float)
    idle: dict[str, float] = defaultdict(float)
    to_device_us: float | None = None
    events = 0
    overlap = _Overlap(gaps)
    for line in lines:
        for event in line.events:
            events += 1
            name = event.name
            if _NOISE.match(name):
                continue
            label = name.partition("(")[0].partition("#")[0].strip()
            start, duration = event.start_ns, event.duration_ns
            if label in _COMPILE:
                compilations.append(duration / 1e3)
            step = dict(event.stats).get("step_num") if duration else None
            if step is not None:
                steps.append(Step(int(step), label, start, duration / 1e3))
                continue
            if _TO_DEVICE.search(label):
                to_device_us = (to_device_us or 0.0) + duration / 1e3
            count[label] += 1
            total[label] += duration / 1e3
            idle[label] += overlap.with_span(start, start + duration) / 1e3
    ranked = sorted(total, key=lambda label: (-idle[label], -total[label], label))
    activities = tuple(HostActivity(label, count[label], total[label], idle[label]) for label in ranked[:ACTIVITIES_KEPT])
    left_out = max(0, len(ranked) - ACTIVITIES_KEPT)
    return Host(events, tuple(compilations), tuple(sorted(steps, key=lambda s: s.start_ns)), activities, left_out, to_device_us, sum(overlap.lengths) / 1e3)


class _Overlap:
    """How much of a span lies in any of some disjoint, sorted gaps."""

    def __init__(self, gaps: Sequence[tuple[float, float]]) -> None:
        self.starts = [start for start, _ in gaps]
        self.ends = [end for _, end in gaps]
        self.lengths = [end - start for start, end in gaps]
        self.before = [0.0]
        for length in self.lengths:
            self.before.append(self.before[-1] + length)

    def with_span(self, start: float, end: float) -> float:
        return self._until(end) - self._until(start)

    def _until(self, at: float) -> float:
        """Length of gaps before a moment."""
        n = bisect_right(self.starts, at)
        return self.before[n] - (max(0.0, self.ends[n - 1] - at) if n else 0.0)


def merged(hosts: Iterable[Host]) -> Host | None:
    """Several hosts as one; None where no trace has a host plane."""
    found = list(hosts)
    if len(found) < 2:
        return found[0] if found else None
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for activity in _activities(found):
        for n, value in enumerate((activity.count, activity.total_us, activity.idle_us)):
            sums[activity.name][n] += value
    activities = tuple(HostActivity(name, int(n), total, idle) for name, (n, total, idle) in sorted(sums.items(), key=lambda item: (-item[1][2], item[0])))
    seen = [h.to_device_us for h in found if h.to_device_us is not None]
    return Host(
        sum(h.events for h in found), tuple(us for h in found for us in h.compilations_us), found[0].steps, activities,
        sum(h.activities_left_out for h in found), sum(seen) if seen else None, sum(h.idle_us for h in found),
    )  # fmt: skip


def _activities(hosts: Iterable[Host]) -> Iterator[HostActivity]:
    for host in hosts:
        yield from host.activities
