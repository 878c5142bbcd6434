"""A measured profile in the graph: devices, counters and stages on the profile, self times on its ops, lines and symbols below."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kgagent.evidence.diff import OpRow
from kgagent.evidence.lines import MADE_BY, Symbols
from kgagent.evidence.mosaic import KernelBody
from kgagent.evidence.profile import Device, Profile
from kgagent.evidence.record import OP_LIMIT, OpFacts, OpWriter, Recorded, op_id, replace_ops
from kgagent.evidence.weigh import Weighed, WeightedOp
from kgagent.graph.records import NewEdge, NewNode, plain
from kgagent.graph.store import Graph


def record_profile(
    graph: Graph,
    profile_id: str,
    profile: Profile,
    weighed: Weighed,
    *,
    lane: str | None,
    label: str,
    limit: int = OP_LIMIT,
    bodies: Mapping[tuple[str, str], KernelBody] = MappingProxyType({}),
    data: Mapping[str, Any] | None = None,
) -> Recorded:
    """Write a profile joined to its HLO (`weigh_profile`) under `profile_id`; the operations beyond `limit` are summed by class.

    `bodies` are kernels by (module, operation), as their HLO holds them.
    """
    times: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0])
    for timed in profile.ops():
        times[timed.module, timed.name][0] += timed.occurrences
        times[timed.module, timed.name][1] += timed.total_ps / 1e6
    kept, rest = _merged(weighed)[:limit], _merged(weighed)[limit:]
    facts = {
        **(data or {}), "label": label, "path": profile.path, "jax": profile.jax, "hosts": list(profile.hosts), "unit": weighed.unit, "total": weighed.total,
        "attributed_frac": weighed.attributed / weighed.total if weighed.total else None, "remainder": weighed.remainder_text,
        "devices": [_device(device) for device in profile.devices], "absent": list(profile.absent), "ops": len(kept) + len(rest), "ops_recorded": len(kept),
        "rest": _by_class(rest),
    }  # fmt: skip
    nodes = [NewNode(profile_id, "profile", profile_id.partition(":")[2], MADE_BY, doc=f"{label}: {profile.path}", data=facts)]
    edges = [NewEdge(profile_id, "within", f"lane:{lane.removeprefix('lane:')}", MADE_BY)] if lane else []
    written = OpWriter(graph, Symbols(graph), nodes, edges)
    for op in kept:
        count, total_us = times[op.module, op.name]
        frames = tuple(frame.place for frame in op.origins[0].frames) if op.origins else ()
        row = OpRow(op.name, op.module, "", op.op_class, op.shape, 0, int(count), op.kernel, frames[0] if frames else "", frames)
        measured = {"self_us": op.weight, "total_us": total_us, "occurrences": int(count), "module": op.module, "share": op.weight / (weighed.total or 1)}
        written.add(profile_id, OpFacts(row, op.origins, bodies.get((op.module, op.name)), "", measured))
    replace_ops(graph, profile_id, {op_id(profile_id, op.name) for op in kept}, written)
    frac = weighed.attributed / weighed.total if weighed.total else None
    return Recorded(profile_id, len(kept), len(rest), len(written.lines), written.with_symbol, frac)


def _merged(weighed: Weighed) -> list[WeightedOp]:
    """One entry an operation: devices of a sharded program run the same ones."""
    merged: dict[tuple[str, str], WeightedOp] = {}
    for op in weighed.ops:
        known = merged.get((op.module, op.name))
        weight = op.weight + (known.weight if known else 0.0)
        merged[op.module, op.name] = WeightedOp(op.name, op.module, op.op_class, op.shape, op.kernel, weight, op.origins)
    return sorted(merged.values(), key=lambda op: (-op.weight, op.module, op.name))


def _by_class(ops: list[WeightedOp]) -> dict[str, dict[str, float]]:
    sums: dict[str, dict[str, float]] = defaultdict(lambda: {"ops": 0, "us": 0.0})
    for op in ops:
        sums[op.op_class]["ops"] += 1
        sums[op.op_class]["us"] += op.weight
    return dict(sums)


def _device(device: Device) -> dict[str, Any]:
    """A device's facts; what the trace doesn't hold is listed in `absent`, never given as 0."""
    return {
        "name": device.name, "device_type": device.device_type, "peak_tflops": device.peak_tflops, "peak_hbm_gb_s": device.peak_hbm_gb_s,
        "executions": len(device.executions), "busy_us": device.busy_ps / 1e6, "op_us": device.op_ps / 1e6, "counters": plain(device.counters),
        "stages": plain(device.stages), "absent": list(device.absent),
    }  # fmt: skip
