"""What the compiler changed: HLO instructions and memory of a candidate's compile against its reference's.

Reads profiles and their `differs_from`, `removes` and `adds` edges; a compile for a topology is called predicted, one for
the CPU cpu, because neither is a time on a TPU.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kgagent.ask.trail import Disk, Ground, Step, steps
from kgagent.ask.wording import bare, counted, dims, listed, settings, size
from kgagent.graph import Edge, Graph, Node

SHOWN_GROUPS = 4
READ = 60  # newest compiles looked at
TEMP_NAMES = ("temp_bytes", "temporaries_bytes", "temp_size_in_bytes", "temporary_bytes", "temp")
PEAK_NAMES = ("peak_bytes", "peak_memory_in_bytes", "peak")


@dataclass(frozen=True, slots=True)
class Compile:
    """A candidate's compile; `path` leads from the lane or kernel to it, `against` to the reference's."""

    node: Node
    path: tuple[Edge, ...]
    knobs: dict[str, Any]
    against: Step | None  # the differs_from edge and the reference's compile

    @property
    def topology(self) -> str:
        return str(self.node.data.get("topology") or "")

    @property
    def predicted(self) -> bool:
        """Compiled ahead of time for a TPU."""
        return self.topology not in ("", "cpu") and self.node.data.get("label", "predicted") != "cpu"

    @property
    def blocked(self) -> str:
        """The compiler's refusal, '' when it compiled."""
        if self.node.data.get("status", "ok") == "ok":
            return ""
        error = self.node.data.get("error")
        if isinstance(error, dict):
            return ": ".join(dict.fromkeys(str(error[name]) for name in ("what", "message") if error.get(name)))
        return str(error or "the compiler gave no reason")

    @property
    def interpreted(self) -> bool:
        """Whether Pallas kernels ran through the interpreter in this compile."""
        return bool(self.node.data.get("interpret") or self.node.data.get("interpreted"))


@dataclass(frozen=True, slots=True)
class Change:
    """Instructions of one opcode and shape that came or went, largest first."""

    shape: str
    opcode: str
    bytes: int
    steps: tuple[Step, ...]

    @property
    def kernel_name(self) -> str:
        return str(self.steps[0].node.data.get("kernel_name") or "")


def compiles(graph: Graph, lane: Node | None, configurations: Iterable[int], kernels: Iterable[int]) -> list[Compile]:
    """Compiles of these configurations in the lane, and those an instruction of which came from these kernels; newest first."""
    found: dict[int, Compile] = {}
    uses = sorted(steps(graph, configurations, ("uses",), back=True, kind="profile"), key=lambda step: step.node.key)[-READ:]
    lowered = steps(graph, kernels, ("lowered_from",), back=True, kind="op")
    by_op = {step.node.id: step.edge for step in lowered}
    holding = steps(graph, [step.node.key for step in lowered], ("has_op",), back=True, kind="profile")[-READ:]
    placed = steps(graph, [step.node.key for step in (*uses, *holding)], ("within",), kind="lane")
    within = {step.edge.src: step.edge for step in placed if lane is not None and step.node.key == lane.key}
    for step in uses:
        if step.node.id in within:
            found[step.node.key] = _compile(graph, step.node, (within[step.node.id], step.edge))
    for step in holding:
        if step.node.key not in found and step.node.id in within:
            found[step.node.key] = _compile(graph, step.node, (within[step.node.id], step.edge, by_op[step.edge.dst]))
    return sorted(found.values(), key=lambda compile_: (compile_.against is not None or bool(compile_.blocked), compile_.node.key), reverse=True)


def _compile(graph: Graph, node: Node, path: tuple[Edge, ...]) -> Compile:
    against = steps(graph, [node.key], ("differs_from",))
    return Compile(node, path, _knobs(graph, node), against[-1] if against else None)


def _knobs(graph: Graph, profile: Node) -> dict[str, Any]:
    text = graph.value("SELECT c.knobs FROM edge e JOIN configuration c ON c.key = e.dst WHERE e.src = ? AND e.type = 'uses'", profile.key)
    found: dict[str, Any] = json.loads(text) if text else {}
    return found


def changes(graph: Graph, compile_: Compile, type_: str) -> list[Change]:
    """What `removes` or `adds` say, grouped by shape and opcode, most bytes first."""
    groups: dict[tuple[str, str, str], list[Step]] = defaultdict(list)
    for step in steps(graph, [compile_.node.key], (type_,), kind="op"):
        data = step.node.data
        groups[str(data.get("shape", "")), str(data.get("opcode", "")), str(data.get("kernel_name") or "")].append(step)
    found = [Change(shape, opcode, max(_bytes(step.node) for step in group), tuple(group)) for (shape, opcode, _), group in groups.items()]
    return sorted(found, key=lambda change: (-change.bytes, change.shape, change.opcode))


def memory(node: Node, names: Sequence[str]) -> int | None:
    """A figure of a compile's memory, None where the compiler gave none."""
    figures = node.data.get("memory")
    if not isinstance(figures, dict):
        return None
    return next((int(figures[name]) for name in names if isinstance(figures.get(name), (int, float))), None)


def memory_change(compile_: Compile) -> str:
    """`temporary memory 2.1 GiB -> 130 MiB`, '' where either side is missing."""
    if compile_.against is None:
        return ""
    parts = []
    for word, names in (("temporary memory", TEMP_NAMES), ("peak memory", PEAK_NAMES)):
        before, after = memory(compile_.against.node, names), memory(compile_.node, names)
        if before is not None and after is not None:
            parts.append(f"{word} {size(before)} -> {size(after)}")
    return ", ".join(parts)


def square(graph: Graph, compile_: Compile, went: Sequence[Change]) -> tuple[list[Change], int, str]:
    """Gone instructions whose last two dimensions are one length of the problem (attention's score matrix), that length and its name."""
    names = _problem(graph, compile_)  # tiles are square too, and their length is no length of the problem
    groups: dict[int, list[Change]] = defaultdict(list)
    for change in went:
        for length in {shape[-1] for shape in dims(change.shape) if len(shape) >= 2 and shape[-1] == shape[-2] and shape[-1] > 1}:
            groups[length].append(change)
    named = [length for length in groups if length in names] or [length for length in groups if length >= 128]
    if not named:
        return [], 0, ""
    length = max(named, key=lambda n: sum(change.bytes for change in groups[n]))
    pattern = f"[.., {length}, {length}]"
    if length not in names:
        return groups[length], length, pattern
    word = " x ".join(names[length][:2])
    return groups[length], length, f"{pattern} ({word if ' x ' in word else f'{word} x {word}'})"


def still_there(graph: Graph, compile_: Compile, length: int) -> int:
    """Instructions of the new compile that still end in [.., length, length]."""
    sql = """SELECT count(*) FROM edge e JOIN node n ON n.key = e.dst
             WHERE e.src = ?1 AND e.type = 'has_op' AND json_extract(n.data, '$.shape') LIKE '%,' || ?2 || ',' || ?2 || ']%'"""
    return int(graph.value(sql, compile_.node.key, str(length)))


def lines(graph: Graph, ops: Iterable[Step], ground: Ground, disk: Disk) -> int:
    """Cite the source lines instructions came from, resting on the edges to them; how many have one."""
    by_id = {step.node.id: step for step in ops}
    placed = _ends(steps(graph, [step.node.key for step in by_id.values()], ("from_line",)))
    inside = {step.edge.src: step for step in steps(graph, [step.node.key for step in placed], ("within",), kind="symbol")}
    for step in placed:
        op = by_id[step.edge.src].node
        path, line = place_of(step.node, inside.get(step.node.id))
        if disk.cite(path, line, line, step.node.id) is None:
            continue
        ground.rest(step.edge).cite(path, line, line, step.node.id, f"{op.data.get('opcode', 'instruction')} {op.name}")
        if step.node.id in inside:
            ground.rest(inside[step.node.id].edge)
    return len({step.edge.src for step in placed})


def _ends(placed: list[Step]) -> list[Step]:
    """Of each instruction's frames the innermost and the outermost: the library's line and the user's."""
    by_op: dict[str, list[Step]] = defaultdict(list)
    for step in placed:
        by_op[step.edge.src].append(step)
    found: list[Step] = []
    for group in by_op.values():
        ranked = sorted(group, key=lambda step: (not step.edge.data.get("dominant", True), int(step.edge.data.get("depth") or 0)))
        main = [step for step in ranked if step.edge.data.get("dominant", True)] or ranked[:1]
        found.extend(main[:1] if len(main) == 1 else [main[0], main[-1]])
    return found


def place_of(line: Node, symbol: Step | None) -> tuple[str | None, int | None]:
    """Path and number of a line node; a path the compiler shortened is taken from the symbol that holds the line."""
    path, _, number = line.id.removeprefix("line:").rpartition("#L")
    path = str(line.data.get("path") or path)
    at = line.line_start or (int(number) if number.isdigit() else None)
    if line.path:
        return line.path, at
    if symbol is not None and symbol.node.path and symbol.node.path.endswith("/" + path.rsplit("/", 1)[-1]):
        return symbol.node.path, at
    return path, at


def _bytes(node: Node) -> int:
    value = node.data.get("bytes")
    return int(value) if isinstance(value, (int, float)) else 0


def _problem(graph: Graph, compile_: Compile) -> dict[int, list[str]]:
    """The problem's lengths by value: {2048: ["seq"]}; of the compile's own operating point, else of its scope and its lane's scopes and points."""
    rows = graph.rows(
        """SELECT s.problem FROM edge e JOIN scope s ON s.key = e.dst WHERE e.src = ?1 AND e.type = 'at'
           UNION SELECT s.problem FROM edge e JOIN scope s ON s.lane = e.dst WHERE e.src = ?1 AND e.type = 'within'
           UNION SELECT json_extract(l.data, '$.op_points') FROM edge e JOIN node l ON l.key = e.dst
           WHERE e.src = ?1 AND e.type = 'within' AND l.kind = 'lane'""",
        compile_.node.key,
    )
    names: dict[int, list[str]] = {}

    def walk(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, str(key))
        elif isinstance(value, list):
            for inner in value:
                walk(inner, name)
        elif isinstance(value, int) and not isinstance(value, bool) and value > 1 and name not in names.setdefault(value, []):
            names[value].append(name)

    told = [json.loads(text) for (text,) in rows if text]
    own = compile_.node.data.get("op_point")
    points = [point for value in told if isinstance(value, list) for point in value if isinstance(point, dict)]
    mine = [point for point in points if own and point.get("name") == own]
    for value in mine or told:
        walk(value, "")
    return names


def against_whom(graph: Graph, compile_: Compile) -> str:
    """Whose compile it is set beside: the lane's reference, or the configuration that was the frontier then."""
    if compile_.against is None or compile_.against.node.data.get("role", "reference") == "reference":
        return "the reference's compile"
    knobs = _knobs(graph, compile_.against.node)
    return f"the compile of its baseline ({settings(knobs)})" if knobs else "its baseline's compile"


def describe(change: Change) -> str:
    """`3 fusion f32[1,8,2048,2048] (128 MiB each)`."""
    count = len(change.steps)
    weight = f" ({size(change.bytes)}{' each' if count > 1 else ''})" if change.bytes else ""
    name = f" `{change.kernel_name}`" if change.kernel_name else ""
    return f"{count} {change.opcode or 'instruction'}{name} {bare(change.shape)}{weight}".replace("  ", " ")


def summary(changes_: Sequence[Change], word: str) -> str:
    """`went: a, b and c; 12 more`, '' when nothing did."""
    if not changes_:
        return ""
    shown = [describe(change) for change in changes_[:SHOWN_GROUPS]]
    rest = sum(len(change.steps) for change in changes_[SHOWN_GROUPS:])
    more = f"; {counted(rest, 'further instruction')}" if rest else ""
    return f"{word}: {listed(shown)}{more}"
