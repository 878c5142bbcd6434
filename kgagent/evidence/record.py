"""A parsed module in the graph: profile -> op -> line -> symbol, and custom calls to the kernels they launch.

Only notable instructions become nodes; the rest are counted by class in the profile, so that nothing is left out silently.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kgagent.evidence.attribution import Attribution, Origin
from kgagent.evidence.canonical import canonical_digest
from kgagent.evidence.cost import HIDDEN
from kgagent.evidence.diff import Buffer, ModuleDiff, OpRow, buffers, op_row
from kgagent.evidence.frames import Frame
from kgagent.evidence.hlo import Computation, Instruction, Module
from kgagent.evidence.launches import launched_kernel
from kgagent.evidence.lines import MADE_BY, Symbols, line_id, line_node
from kgagent.evidence.mosaic import KernelBody, body_of
from kgagent.graph.records import NewEdge, NewNode, plain
from kgagent.graph.store import Graph

ALWAYS = ("kernel", "collective", "matmul", "custom call")  # classes that are notable whatever their size
OP_LIMIT = 200
DIFF_LIMIT = 100
BUFFERS_KEPT = 20
ORIGINS_KEPT = 8


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was written for a module; `attributed_frac` is of bytes written, whose lines are known."""

    profile: str
    ops: int
    ops_left_out: int
    lines: int
    lines_with_symbol: int
    attributed_frac: float | None


@dataclass(frozen=True, slots=True)
class OpFacts:
    row: OpRow
    origins: tuple[Origin, ...]
    body: KernelBody | None
    target: str
    measured: Mapping[str, Any] | None = None  # joins the op node's data


def op_id(compile_id: str, instruction: str) -> str:
    """The node of an instruction of a compile or profile."""
    return f"op:{compile_id.partition(':')[2]}/{instruction}"


def record_module(
    graph: Graph, compile_id: str, module: Module, *, lane: str | None, label: str, limit: int = OP_LIMIT, data: Mapping[str, Any] | None = None
) -> Recorded:
    """Write a compile's module under `compile_id`; `data` joins the profile's own facts. Run again, it replaces what it wrote."""
    attribution = Attribution(module)
    ops = [_op(attribution, c, i, count.times) for c, i, count in attribution.executed() if i.opcode not in HIDDEN]
    ranked = sorted(ops, key=lambda op: (op.row.op_class not in ALWAYS, -op.row.output_bytes * op.row.times, op.row.name))
    kept, rest = ranked[:limit], ranked[limit:]
    facts = {
        **(data or {}), "label": label, "module": module.name, "instructions": module.instruction_count, "unread_lines": module.unread,
        "canonical": canonical_digest(module), "ops": len(ops), "ops_recorded": len(kept), "rest": _by_class(rest), "by_class": _by_class(ops),
        "attributed_frac": _attributed(ops), "buffers": [_buffer(b) for b in buffers(attribution)[:BUFFERS_KEPT]],
        "counts_exact": all(count.exact for count in attribution.counts.values()),
    }  # fmt: skip
    nodes = [NewNode(compile_id, "profile", compile_id.partition(":")[2], MADE_BY, doc=f"{label}: {module.name}", data=facts)]
    edges = [NewEdge(compile_id, "within", f"lane:{lane.removeprefix('lane:')}", MADE_BY)] if lane else []
    symbols = Symbols(graph)
    written = OpWriter(graph, symbols, nodes, edges)
    for op in kept:
        written.add(compile_id, op)
    replace_ops(graph, compile_id, {op_id(compile_id, op.row.name) for op in kept}, written)
    return Recorded(compile_id, len(kept), len(rest), len(written.lines), written.with_symbol, _attributed(ops))


def replace_ops(graph: Graph, owner: str, ids: set[str], written: OpWriter) -> None:
    """Write a profile's nodes and edges in one transaction, taking out ops of an earlier recording that are no longer among them."""
    with graph.transaction():
        _keep_dumped(graph, written)
        stale = graph.rows("SELECT n.id FROM edge e JOIN node n ON n.key = e.dst JOIN node p ON p.key = e.src WHERE p.id = ? AND e.type = 'has_op'", owner)
        for (old,) in stale:
            if old not in ids:
                graph.execute("DELETE FROM node WHERE id = ?", old)
            else:
                graph.execute("DELETE FROM edge WHERE src = (SELECT key FROM node WHERE id = ?) AND type IN ('from_line', 'lowered_from')", old)
        graph.put_nodes(written.nodes)
        graph.put_edges(written.edges)


def _keep_dumped(graph: Graph, written: OpWriter) -> None:
    """What a dump told of a kernel stays when the same kernel is recorded again."""
    for node in written.nodes:
        data = node.data if node.kind == "op" else None
        known = graph.node(node.id) if data and data.get("kernel_name") else None
        if data is None or known is None or (known.data.get("kernel"), known.data.get("shape")) != (plain(data.get("kernel")), data.get("shape")):
            continue
        data.update({part: known.data[part] for part in ("schedule", "mosaic") if part in known.data})


def record_diff(graph: Graph, candidate_id: str, reference_id: str, diff: ModuleDiff, *, limit: int = DIFF_LIMIT) -> None:
    """Write what a candidate's compile removes from and adds to its reference's; both profiles must be in the graph."""
    graph.need(candidate_id)
    graph.need(reference_id)
    went, came = _largest(diff.went, limit), _largest(diff.came, limit)
    facts = {
        "equal": diff.equal, "same": diff.same, "moved": diff.moved, "changed": len(diff.changed), "went": len(diff.went), "came": len(diff.came),
        "went_left_out": len(diff.went) - len(went), "came_left_out": len(diff.came) - len(came),
        "by_class": plain(diff.by_class), "by_line": plain(diff.by_line[:limit]), "lines_left_out": max(0, len(diff.by_line) - limit),
        "buffers_went": [_buffer(b) for b in diff.buffers_went[:BUFFERS_KEPT]], "buffers_went_total": len(diff.buffers_went),
        "buffers_came": [_buffer(b) for b in diff.buffers_came[:BUFFERS_KEPT]], "buffers_came_total": len(diff.buffers_came),
    }  # fmt: skip
    written = OpWriter(graph, Symbols(graph), [], [NewEdge(candidate_id, "differs_from", reference_id, MADE_BY, data=facts)])
    for rows, owner, type_ in ((went, reference_id, "removes"), (came, candidate_id, "adds")):
        for row in rows:
            if graph.node(op_id(owner, row.name)) is None:
                written.add(owner, OpFacts(row, (Origin(_frames(row.frames), 1.0),) if row.frames else (), None, ""))
            written.edges.append(NewEdge(candidate_id, type_, op_id(owner, row.name), MADE_BY))
    with graph.transaction():
        graph.execute("DELETE FROM edge WHERE type IN ('removes', 'adds', 'differs_from') AND src = (SELECT key FROM node WHERE id = ?)", candidate_id)
        graph.put_nodes(written.nodes)
        graph.put_edges(written.edges)


def _largest(rows: Iterable[OpRow], limit: int) -> list[OpRow]:
    return sorted(rows, key=lambda row: (row.op_class not in ALWAYS, -row.output_bytes * row.times, row.name))[:limit]


def _frames(places: tuple[str, ...]) -> tuple[Frame, ...]:
    return tuple(Frame(place.rpartition(":")[0], int(place.rpartition(":")[2])) for place in places)


def _op(attribution: Attribution, computation: Computation, instruction: Instruction, times: int) -> OpFacts:
    row = op_row(attribution, computation, instruction, times)
    return OpFacts(row, attribution.origins(computation, instruction), body_of(instruction) if row.kernel else None, instruction.target)


def _by_class(ops: Iterable[OpFacts]) -> dict[str, dict[str, int]]:
    sums: dict[str, dict[str, int]] = defaultdict(lambda: {"ops": 0, "bytes": 0})
    for op in ops:
        sums[op.row.op_class]["ops"] += 1
        sums[op.row.op_class]["bytes"] += op.row.output_bytes * op.row.times
    return dict(sums)


def _attributed(ops: Iterable[OpFacts]) -> float | None:
    """Share of bytes written by operations whose line is known; None where nothing is written."""
    rows = [op.row for op in ops]
    total = sum(row.output_bytes * row.times for row in rows)
    return sum(row.output_bytes * row.times for row in rows if row.line) / total if total else None


def _buffer(buffer: Buffer) -> dict[str, Any]:
    return {"op": buffer.name, "shape": buffer.shape, "bytes": buffer.buffer_bytes, "space": buffer.space, "line": buffer.line, "frames": list(buffer.frames)}


def _origin(origin: Origin) -> dict[str, Any]:
    """A whole chain with its share: flame graphs and gaps are made from the graph alone."""
    return {"share": origin.share, "inherited": origin.inherited, "frames": [[frame.file, frame.line, frame.function] for frame in origin.frames]}


class OpWriter:
    """Collects nodes and edges of ops, each line once."""

    def __init__(self, graph: Graph, symbols: Symbols, nodes: list[NewNode], edges: list[NewEdge]) -> None:
        self.graph, self.symbols, self.nodes, self.edges = graph, symbols, nodes, edges
        self.lines: set[str] = set()
        self.with_symbol = 0

    def add(self, owner: str, op: OpFacts) -> None:
        """An op with its lines and, for a kernel's launch, the kernel."""
        row, id_ = op.row, op_id(owner, op.row.name)
        data: dict[str, Any] = {
            "opcode": row.opcode, "op_class": row.op_class, "shape": row.shape, "bytes": row.output_bytes, "times": row.times,
            "computation": row.computation, "line": row.line, "frames": list(row.frames), "origins": [_origin(o) for o in op.origins[:ORIGINS_KEPT]],
        }  # fmt: skip
        if row.kernel:
            data["kernel_name"] = row.kernel
        data.update(op.measured or {})
        if op.target:
            data["target"] = op.target
        if op.body is not None:
            data["kernel"] = {
                "body": op.body.name, "digest": op.body.digest, "grid": op.body.grid, "windows": op.body.windows, "buffers": op.body.buffers,
                "scratch_bytes": op.body.scratch_bytes, "steps": op.body.steps,
            }  # fmt: skip
        if len(op.origins) > ORIGINS_KEPT:
            data["origins_left_out"] = len(op.origins) - ORIGINS_KEPT
        self.nodes.append(NewNode(id_, "op", row.name, MADE_BY, doc=f"{row.opcode} {row.shape}", data=data))
        self.edges.append(NewEdge(owner, "has_op", id_, MADE_BY))
        self._from_lines(id_, op)
        if row.kernel:
            self._kernel(id_, op)

    def _from_lines(self, id_: str, op: OpFacts) -> None:
        shares: dict[str, dict[str, Any]] = {}
        for rank, origin in enumerate(op.origins[:ORIGINS_KEPT]):
            for depth, frame in enumerate(origin.frames):
                known = shares.setdefault(line_id(frame), {"share": 0.0, "depth": depth, "dominant": rank == 0, "inherited": origin.inherited})
                known["share"] += origin.share
                known["depth"] = min(known["depth"], depth)
                self._line(frame)
        for frame in op.body.frames if op.body else ():
            shares.setdefault(line_id(frame), {"share": None, "depth": 0, "dominant": False, "in_kernel_body": True})
            self._line(frame)
        for line, facts in shares.items():
            how = "inferred" if facts.pop("inherited", False) else "exact"
            self.edges.append(NewEdge(id_, "from_line", line, MADE_BY, how=how, data=facts))

    def _line(self, frame: Frame) -> None:
        id_ = line_id(frame)
        if id_ in self.lines:
            return
        self.lines.add(id_)
        self.nodes.append(line_node(frame))
        place = self.symbols.at(frame.file, frame.line)
        if place is not None and place.symbol is not None:
            self.with_symbol += 1
            self.edges.append(NewEdge(id_, "within", place.symbol, MADE_BY, how=place.how))

    def _kernel(self, id_: str, op: OpFacts) -> None:
        """The ingested kernel this launches: its launch line, else its body's lines, else its name."""
        found = launched_kernel(self.graph, self.symbols, tuple(f for o in op.origins for f in o.frames), op.body, op.row.kernel)
        if found is not None:
            self.edges.append(NewEdge(id_, "lowered_from", found.kernel, MADE_BY, how=found.how, data={"because": found.because}))
