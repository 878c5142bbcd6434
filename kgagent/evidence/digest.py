"""One screen about one kernel: what it is, what the compiler scheduled for it, how it ran, and which ideas its code is about.

The numbers come from the dump, the HLO and the profile; the levers come from the concept pages its source mentions, never from here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import Any

from kgagent.errors import UnknownThing
from kgagent.evidence.llo import Schedule
from kgagent.evidence.mosaic_dump import MosaicProgram
from kgagent.evidence.recorded import Concepts
from kgagent.graph.records import Node
from kgagent.graph.store import Graph

_LINES_KEPT = 40
_CONCEPTS_KEPT = 6


@dataclass(frozen=True, slots=True)
class LineShare:
    """A source line of a kernel's body with its part of the schedule; static, before loop and condition weights."""

    place: str
    bundles: float
    share: float


@dataclass(frozen=True, slots=True)
class Lever:
    """Something one can do, with the concept that names it."""

    lever: str
    name: str
    concept: str


@dataclass(frozen=True, slots=True)
class KernelDigest:
    """What is known of a kernel's launch; None and empty mean that nobody looked, never 0."""

    op: str
    name: str
    kernel: str
    grid: tuple[int, ...] | None
    windows: tuple[tuple[int, ...], ...]
    buffers: tuple[int, ...]  # of each window, where the kernel pipelines itself
    steps: int | None
    scratch_bytes: int | None
    self_us: float | None
    occurrences: int | None
    schedule: dict[str, Any] | None
    vmem_bytes: int | None
    vmem_limit_bytes: int | None
    lines: tuple[LineShare, ...]
    concepts: tuple[str, ...]
    levers: tuple[Lever, ...]

    @property
    def vmem_frac(self) -> float | None:
        """VMEM allocated against the limit."""
        return self.vmem_bytes / self.vmem_limit_bytes if self.vmem_bytes is not None and self.vmem_limit_bytes else None


def schedule_facts(schedule: Schedule) -> dict[str, Any]:
    """A schedule as an op node's data."""
    return {
        "bundles": schedule.bundles, "empty_bundles": schedule.empty_bundles,
        "loops": [{"first": loop.first, "last": loop.last, "bound": loop.bound, "bundles": loop.bundles} for loop in schedule.loops],
        "regions": [{"first": c.first, "last": c.last, "bundles": c.bundles, "line": c.place, "depth": c.depth} for c in schedule.conditionals],
        "scalar_spills": schedule.scalar_spills, "scalar_fills": schedule.scalar_fills, "vector_spills": schedule.vector_spills,
        "vector_fills": schedule.vector_fills, "vmem_bytes": schedule.vmem_bytes,
        "slots": {slot.unit: {"capacity": slot.capacity, "used": slot.used, "frac": slot.frac(schedule.bundles)} for slot in schedule.slots},
        "lines": [[place, bundles] for place, bundles in schedule.line_bundles[:_LINES_KEPT]],
        "lines_left_out": max(0, len(schedule.line_bundles) - _LINES_KEPT), "unlocated_bundles": schedule.unlocated_bundles,
    }  # fmt: skip


def record_schedule(graph: Graph, op: str, schedule: Schedule, *, vmem_limit_bytes: int | None = None) -> None:
    """Keep a kernel's schedule on its op node (`record.op_id`); what else the node says stays."""
    graph.need(op)
    facts = {**schedule_facts(schedule), "vmem_limit_bytes": vmem_limit_bytes}
    with graph.transaction():
        graph.execute("UPDATE node SET data = json_set(coalesce(data, '{}'), '$.schedule', json(?)) WHERE id = ?", json.dumps(facts, sort_keys=True), op)


def record_program(graph: Graph, op: str, program: MosaicProgram) -> None:
    """Keep what a Mosaic dump says of a kernel on its op node; its HLO wins where both speak."""
    graph.need(op)
    facts = {
        "function": program.function, "read_from": program.read_from, "grid": program.grid, "windows": program.windows, "buffers": program.buffers,
    }  # fmt: skip
    with graph.transaction():
        graph.execute("UPDATE node SET data = json_set(coalesce(data, '{}'), '$.mosaic', json(?)) WHERE id = ?", json.dumps(facts, sort_keys=True), op)


def kernel_digest(graph: Graph, profile: str, name: str) -> KernelDigest:
    """The digest of the kernel of that name (or op) in a recorded run or compile; `UnknownThing` names those it has."""
    graph.need(profile)
    nodes = [graph.need(edge.dst) for edge in graph.edges(src=profile, type="has_op")]
    launches = [node for node in nodes if node.data.get("kernel_name")]
    found = next((node for node in launches if name in (node.id, node.name, node.data["kernel_name"], (node.data.get("kernel") or {}).get("body"))), None)
    if found is None:
        names = ", ".join(dict.fromkeys(str(node.data["kernel_name"]) for node in launches))
        raise UnknownThing(f"no kernel {name!r} in {profile}", hint=f"it has {names}" if names else "it launches no Pallas kernel")
    data, schedule = found.data, found.data.get("schedule")
    body, dumped = data.get("kernel") or {}, data.get("mosaic") or {}
    lowered = graph.edges(src=found.id, type="lowered_from")
    concepts = _concepts(graph, found, lowered[0].dst if lowered else None)
    total = schedule["bundles"] if schedule else 0
    lines = tuple(LineShare(place, bundles, bundles / total) for place, bundles in schedule["lines"]) if schedule else ()
    grid = body.get("grid") or dumped.get("grid")
    steps = body.get("steps") if body.get("steps") is not None else (prod(grid) if grid else None)
    return KernelDigest(
        found.id, str(data["kernel_name"]), lowered[0].dst if lowered else "", tuple(grid) if grid else None,
        tuple(tuple(window) for window in body.get("windows") or dumped.get("windows") or ()), tuple(body.get("buffers") or dumped.get("buffers") or ()),
        steps, body.get("scratch_bytes"), data.get("self_us"),
        data.get("occurrences"), schedule, schedule.get("vmem_bytes") if schedule else None, schedule.get("vmem_limit_bytes") if schedule else None,
        lines, concepts, levers_of(graph, concepts),
    )  # fmt: skip


def _concepts(graph: Graph, op: Node, kernel: str | None) -> tuple[str, ...]:
    """What the kernel's own node mentions, then what the symbols of its lines mention most."""
    found: dict[str, float] = {}
    if kernel is not None:
        for edge in graph.edges(src=kernel, type="mentions"):
            if edge.dst.startswith("concept:"):
                found[edge.dst] = found.get(edge.dst, 0.0) + 1.0
    lookup = Concepts(graph)
    for edge in graph.edges(src=op.id, type="from_line"):
        line = graph.need(edge.dst)
        for rank, concept in enumerate(lookup.of_line(line.id)[1]):
            found[concept] = found.get(concept, 0.0) + 1.0 / (1 + rank)
    return tuple(sorted(found, key=lambda concept: (-found[concept], concept))[:_CONCEPTS_KEPT])


def levers_of(graph: Graph, concepts: tuple[str, ...]) -> tuple[Lever, ...]:
    """Levers that the concepts' pages tie to them, whichever relation they use."""
    out: dict[str, Lever] = {}
    for concept in concepts:
        rows = graph.rows(
            """SELECT b.id, b.name FROM edge e JOIN node a ON a.key = e.src JOIN node b ON b.key = e.dst WHERE a.id = ? AND b.kind = 'lever'
               UNION SELECT a.id, a.name FROM edge e JOIN node a ON a.key = e.src JOIN node b ON b.key = e.dst WHERE b.id = ? AND a.kind = 'lever'""",
            concept, concept,
        )  # fmt: skip
        for id_, name in rows:
            out.setdefault(str(id_), Lever(str(id_), str(name), concept))
    return tuple(out.values())
