"""A recorded run or compile back from the graph: its weighed operations, and the tree op -> line -> symbol -> concept.

Everything here reads the graph alone: no HLO, no profile, no jax.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any

from kgagent.errors import UsageError
from kgagent.evidence.attribution import Origin
from kgagent.evidence.frames import Frame
from kgagent.evidence.gap import NO_CONCEPT, UNKNOWN, Key
from kgagent.evidence.lines import line_id
from kgagent.evidence.weigh import Weighed, WeightedOp
from kgagent.graph.records import Node
from kgagent.graph.store import NODE_COLUMNS, Graph, node_of

_OUTWARDS = 6  # enclosing symbols looked at for a concept


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """One line of an operation; `depth` 0 is innermost, the highest the user's outermost call."""

    place: str
    function: str
    depth: int
    share: float
    symbol: str
    concepts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """One operation with its weight and where it comes from."""

    op: str
    name: str
    op_class: str
    shape: str
    weight: float
    share: float
    kernel: str  # kernel node; "" where none
    lines: tuple[EvidenceLine, ...]


@dataclass(frozen=True, slots=True)
class EvidenceTree:
    """A run or compile by operation, heaviest first; the remainder is always shown."""

    profile: str
    label: str
    unit: str
    total: float
    rows: tuple[EvidenceRow, ...]
    rows_left_out: int
    weight_left_out: float
    remainder: str


def weighed_from_graph(graph: Graph, profile: str) -> Weighed:
    """The operations of a recorded profile or compile; those that were only counted come as one of their class, without a line."""
    node = graph.need(profile)
    if node.kind != "profile":
        raise UsageError(f"{profile} is a {node.kind}, not a profile", hint="kgagent find compile: lists what was compiled")
    measured = node.data.get("unit") == "us"
    ops = [_op(op, measured) for op in _ops(graph, node)]
    for op_class, counted in (node.data.get("rest") or {}).items():
        weight = float(counted.get("us", counted.get("bytes", 0.0)))
        if weight:
            ops.append(WeightedOp(f"{counted['ops']} more ({op_class})", node.name, op_class, "", "", weight, ()))
    ops.sort(key=lambda op: (-op.weight, op.name))
    return Weighed("us" if measured else "bytes", not measured, tuple(ops), "" if measured else "bytes written, not time")


def _ops(graph: Graph, node: Node) -> list[Node]:
    rows = graph.rows(f"SELECT {NODE_COLUMNS} FROM edge e JOIN node n ON n.key = e.dst WHERE e.src = ? AND e.type = 'has_op'", node.key)
    return [node_of(row) for row in rows]


def _op(op: Node, measured: bool) -> WeightedOp:
    data = op.data
    weight = float(data.get("self_us", 0.0)) if measured else float(data.get("bytes", 0) * data.get("times", 1))
    origins = tuple(
        Origin(tuple(Frame(file, line, function) for file, line, function in origin["frames"]), origin["share"], origin["inherited"])
        for origin in data.get("origins", ())
    )
    total = sum(origin.share for origin in origins)
    if total and total < 1.0:  # the smallest origins were left out when it was recorded
        origins = tuple(Origin(origin.frames, origin.share / total, origin.inherited) for origin in origins)
    return WeightedOp(
        op.name, str(data.get("module", "")), str(data.get("op_class", "")), str(data.get("shape", "")), str(data.get("kernel_name", "")), weight, origins
    )


class Concepts:
    """From a source position to the concepts its symbol, or the nearest enclosing one, mentions."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._places: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._everywhere: dict[str, int] = {}
        self._all: int | None = None

    def at(self, frame: Frame) -> tuple[str, tuple[str, ...]]:
        """(symbol, concepts), foremost first: what is mentioned often there and seldom elsewhere says most."""
        return self.of_line(line_id(frame))

    def of_line(self, id_: str) -> tuple[str, tuple[str, ...]]:
        """The same for a line node."""
        if id_ not in self._places:
            symbol = self.graph.value(
                "SELECT b.id FROM edge e JOIN node a ON a.key = e.src JOIN node b ON b.key = e.dst WHERE a.id = ? AND e.type = 'within'", id_
            )
            self._places[id_] = (symbol or "", self._of(symbol) if symbol else ())
        return self._places[id_]

    def _of(self, symbol: str) -> tuple[str, ...]:
        at: str | None = symbol
        for _ in range(_OUTWARDS):
            if at is None:
                break
            rows = self.graph.rows(
                "SELECT b.id, count(*) FROM edge e JOIN node a ON a.key = e.src JOIN node b ON b.key = e.dst "
                "WHERE a.id = ? AND e.type = 'mentions' AND b.kind = 'concept' GROUP BY b.id",
                at,
            )
            if rows:
                return tuple(sorted((str(id_) for id_, _ in rows), key=lambda id_: (-self._weight(id_, dict(rows)[id_]), id_)))
            at = self.graph.value(
                "SELECT a.id FROM edge e JOIN node a ON a.key = e.src JOIN node b ON b.key = e.dst "
                "WHERE b.id = ? AND e.type = 'defines' AND a.kind = 'symbol' LIMIT 1",
                at,
            )
        return ()

    def _weight(self, concept: str, here: int) -> float:
        """Mentions here, weighed by how few there are in all."""
        if concept not in self._everywhere:
            sql = "SELECT count(*) FROM edge e JOIN node b ON b.key = e.dst WHERE b.id = ? AND e.type = 'mentions'"
            self._everywhere[concept] = int(self.graph.value(sql, concept))
        if self._all is None:
            self._all = int(self.graph.value("SELECT count(*) FROM edge WHERE type = 'mentions'"))
        return here * log(1 + self._all / self._everywhere[concept])


def by_concept(graph: Graph) -> Key:
    """A gap's key: the foremost concept of the innermost frame that has one."""
    concepts = Concepts(graph)

    def key(op: WeightedOp, origin: Origin | None) -> str:
        if origin is None:
            return UNKNOWN
        for frame in origin.frames:
            found = concepts.at(frame)[1]
            if found:
                return found[0]
        return NO_CONCEPT

    return key


def evidence_tree(graph: Graph, profile: str, *, limit: int = 20) -> EvidenceTree:
    """Operations of a recorded run with their lines, symbols, kernels and concepts; what is beyond the limit is counted."""
    node, weighed, concepts = graph.need(profile), weighed_from_graph(graph, profile), Concepts(graph)
    ids = {op.name: op for op in _ops(graph, node)}
    recorded = [op for op in weighed.ops if op.name in ids]
    rows = []
    for op in recorded[:limit]:
        id_ = ids[op.name].id
        kernel = graph.edges(src=id_, type="lowered_from")
        rows.append(
            EvidenceRow(id_, op.name, op.op_class, op.shape, op.weight, op.weight / (weighed.total or 1), kernel[0].dst if kernel else "", _lines(op, concepts))
        )
    shown = sum(row.weight for row in rows)
    left_out = len(recorded) - len(rows) + sum(int(counted["ops"]) for counted in (node.data.get("rest") or {}).values())
    label = str(node.data.get("label", ""))
    return EvidenceTree(profile, label, weighed.unit, weighed.total, tuple(rows), left_out, weighed.total - shown, weighed.remainder_text)


def _lines(op: WeightedOp, concepts: Concepts) -> tuple[EvidenceLine, ...]:
    out: dict[str, dict[str, Any]] = {}
    for origin in op.origins:
        for depth, frame in enumerate(origin.frames):
            known = out.setdefault(frame.place, {"frame": frame, "depth": depth, "share": 0.0})
            known["share"] += origin.share
    lines = []
    for place, known in out.items():
        symbol, found = concepts.at(known["frame"])
        lines.append(EvidenceLine(place, known["frame"].function, known["depth"], known["share"], symbol, found))
    return tuple(lines)
