"""Who calls whom in a module and how often: trip counts from loop conditions, call trees, async pairs.

The TPU compiler prints no trip counts; they follow from the condition, the step in the body and the initial value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kgagent.evidence.frames import Frame
from kgagent.evidence.hlo import Computation, Instruction, Module

_KNOWN_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_TRANSPARENT = frozenset(("copy", "bitcast", "convert", "reshape", "optimization-barrier", "copy-done"))
_INLINE = frozenset(("fusion", "call"))
_ASYNC_END = re.compile(r"-(?:done|update)$")
_INT = re.compile(r"-?\d+$")
_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}
_DEPTH_LIMIT = 50


@dataclass(frozen=True, slots=True)
class Element:
    """Element `index` of a loop's tuple as it enters an iteration, plus a constant."""

    index: int
    plus: int = 0


LOOP: Literal["loop"] = "loop"
Value: TypeAlias = int | Element | tuple[object, ...] | None
Known: TypeAlias = Value | Literal["loop"]


@dataclass(frozen=True, slots=True)
class Loop:
    """A while instruction; `trips` is None where the condition doesn't say (data-dependent loops)."""

    instruction: Instruction
    computation: str
    condition: str
    body: str
    trips: int | None


@dataclass(frozen=True, slots=True)
class AsyncPair:
    """A start with its done, and what is scheduled between them (in printed order)."""

    start: Instruction
    done: Instruction
    computation: str
    between: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Count:
    """How often a computation runs in one execution of the module; `exact` is False where a loop's trips or a branch are unknown."""

    times: int
    exact: bool


def loops(module: Module) -> tuple[Loop, ...]:
    """Every while loop of the module."""
    out = []
    for computation, instruction in module.instructions():
        if instruction.opcode == "while":
            roles = dict(instruction.called)
            out.append(Loop(instruction, computation.name, roles.get("condition", ""), roles.get("body", ""), trip_count(module, computation, instruction)))
    return tuple(out)


def trip_count(module: Module, computation: Computation, loop: Instruction) -> int | None:
    """How often the body runs, from the backend's word if it gives one, else from condition, step and initial value."""
    known = _KNOWN_TRIPS.search(loop.text)
    if known:
        return int(known.group(1))
    roles = dict(loop.called)
    condition, body = module.computations.get(roles.get("condition", "")), module.computations.get(roles.get("body", ""))
    if condition is None or body is None or not loop.operands:
        return None
    compare = _compare(module, condition)
    if compare is None:
        return None
    steps = _Values(module, body, {0: LOOP}).of(body.root.name)
    start = _Values(module, computation, {}).of(loop.operands[0])
    if not isinstance(steps, tuple) or not isinstance(start, tuple):
        return None
    left, right, direction = compare
    forward = _counted(left, right, direction, steps, start)
    return forward if forward is not None else _counted(right, left, _MIRRORED.get(direction, direction), steps, start)


def _counted(counter: Value, bound: Value, direction: str, steps: tuple[object, ...], start: tuple[object, ...]) -> int | None:
    """Trips if `counter` is an element that the body steps by a constant and `bound` one that it leaves alone."""
    if not isinstance(counter, Element) or counter.index >= min(len(steps), len(start)):
        return None
    step, first, limit = steps[counter.index], start[counter.index], _invariant(bound, steps, start)
    if not isinstance(step, Element) or step.index != counter.index or not isinstance(first, int) or limit is None:
        return None
    return _trips(first + counter.plus, limit, step.plus, direction)


def _invariant(value: Value, steps: tuple[object, ...], start: tuple[object, ...]) -> int | None:
    """A bound as a number: a constant, or an element the body passes on unchanged."""
    if isinstance(value, int):
        return value
    if isinstance(value, Element) and value.index < min(len(steps), len(start)) and steps[value.index] == Element(value.index):
        initial = start[value.index]
        return initial + value.plus if isinstance(initial, int) else None
    return None


def _trips(first: int, bound: int, step: int, direction: str) -> int | None:
    if direction in ("LT", "LE") and step > 0:
        bound += direction == "LE"
        return max(0, -(-(bound - first) // step))
    if direction in ("GT", "GE") and step < 0:
        bound -= direction == "GE"
        return max(0, -(-(first - bound) // -step))
    if direction == "NE" and step != 0 and (bound - first) % step == 0 and (bound - first) // step >= 0:
        return (bound - first) // step
    return None


def _compare(module: Module, condition: Computation) -> tuple[Value, Value, str] | None:
    """The comparison a condition returns, looked for through fusions and calls."""
    values, instruction = _Values(module, condition, {0: LOOP}), condition.root
    for _ in range(_DEPTH_LIMIT):
        inner = values.inside(instruction)
        if inner is not None:
            values, instruction = inner, inner.computation.root
        elif instruction.opcode in _TRANSPARENT and instruction.operands and instruction.operands[0] in values.computation.by_name:
            instruction = values.computation.by_name[instruction.operands[0]]
        else:
            break
    if instruction.opcode != "compare" or len(instruction.operands) != 2:
        return None
    left, right = (values.of(name) for name in instruction.operands)
    return left, right, instruction.attribute("direction") or ""


class _Values:
    """Scalars and tuples of one computation as constants and loop elements; `known` are its parameters (LOOP: the loop's own tuple)."""

    def __init__(self, module: Module, computation: Computation, known: dict[int, Known], depth: int = 0) -> None:
        self.module, self.computation, self.known, self.depth = module, computation, known, depth
        self.memo: dict[str, Value] = {}

    def of(self, name: str) -> Value:
        """The value of an instruction; None for what isn't a constant, an element plus a constant, or a tuple of such."""
        if name not in self.memo:
            self.memo[name] = None  # a cycle in damaged text ends here
            instruction = self.computation.by_name.get(name)
            # only scalars and tuples can count iterations; arrays would be walked for nothing
            if instruction is not None and ("[]" in instruction.shape[:8] or instruction.shape.startswith("(")):
                self.memo[name] = self._read(instruction)
        return self.memo[name]

    def parameter(self, instruction: Instruction) -> Known:
        text = instruction.args.strip()
        return self.known.get(int(text)) if text.isdigit() else None

    def _read(self, instruction: Instruction) -> Value:
        opcode, names = instruction.opcode, instruction.operands
        if opcode == "constant":
            text = instruction.args.strip()
            return int(text) if _INT.match(text) else None
        if opcode == "parameter":
            value = self.parameter(instruction)
            return None if isinstance(value, str) else value
        if opcode == "tuple":
            return tuple(self.of(name) for name in names)
        if not names:
            return None
        if opcode == "get-tuple-element":
            return self._element(names[0], int(instruction.attribute("index") or 0))
        if opcode in _TRANSPARENT:
            return self.of(names[0])
        if opcode in ("add", "subtract") and len(names) == 2:
            return _sum(self.of(names[0]), self.of(names[1]), -1 if opcode == "subtract" else 1)
        inner = self.inside(instruction)
        return inner.of(inner.computation.root.name) if inner else None

    def _element(self, whole: str, index: int) -> Value:
        source = self.computation.by_name.get(whole)
        if source is not None and source.opcode == "parameter" and self.parameter(source) == LOOP:
            return Element(index)
        value = self.of(whole)
        part = value[index] if isinstance(value, tuple) and index < len(value) else None
        return part if isinstance(part, (int, Element, tuple)) else None

    def inside(self, instruction: Instruction) -> _Values | None:
        """The values of a fusion's or call's computation, its parameters taken from here."""
        if instruction.opcode not in _INLINE or self.depth > _DEPTH_LIMIT:
            return None
        roles = dict(instruction.called)
        inner = self.module.computations.get(roles.get("calls") or roles.get("to_apply", ""))
        known: dict[int, Known] = {n: self.of(name) for n, name in enumerate(instruction.operands)}
        return _Values(self.module, inner, known, self.depth + 1) if inner else None


def _sum(left: Value, right: Value, sign: int) -> Value:
    if isinstance(left, int) and isinstance(right, int):
        return left + sign * right
    if isinstance(left, Element) and isinstance(right, int):
        return Element(left.index, left.plus + sign * right)
    if isinstance(left, int) and isinstance(right, Element) and sign == 1:
        return Element(right.index, right.plus + left)
    return None


def counts(module: Module) -> dict[str, Count]:
    """How often each reachable computation runs; one trip is counted, and marked inexact, where a loop doesn't say."""
    trips = {(loop.computation, loop.instruction.name): loop.trips for loop in loops(module)}
    order = _callers_first(module)
    out: dict[str, Count] = {module.entry.name: Count(1, True)}
    for name in order:
        here = out.get(name)
        if here is None:
            continue
        for instruction in module.computations[name].instructions:
            if instruction.opcode in ("async-update", "async-done"):
                continue  # they name what their start has already called
            for role, callee in instruction.called:
                times, exact = here.times, here.exact
                if role in ("body", "condition") and instruction.opcode == "while":
                    n = trips[(name, instruction.name)]
                    times *= (1 if n is None else n) + (role == "condition" and n is not None)
                    exact = exact and n is not None
                elif instruction.opcode == "conditional":
                    exact = False  # one branch of several runs; each is counted as if it did
                before = out.get(callee)
                out[callee] = Count(times + (before.times if before else 0), exact and (before is None or before.exact))
    return out


def _callers_first(module: Module) -> list[str]:
    """Reachable computations, each behind all that call it."""
    order: list[str] = []
    seen: set[str] = set()
    stack: list[tuple[str, Iterator[str]]] = [(module.entry.name, _callees(module, module.entry.name))]
    seen.add(module.entry.name)
    while stack:
        name, rest = stack[-1]
        following = next((callee for callee in rest if callee not in seen), None)
        if following is None:
            order.append(name)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, _callees(module, following)))
    return order[::-1]


def _callees(module: Module, name: str) -> Iterator[str]:
    return (callee for i in module.computations[name].instructions for _, callee in i.called if callee in module.computations)


def async_pairs(module: Module) -> tuple[AsyncPair, ...]:
    """Starts matched to their dones through updates; what stands between them can hide the transfer."""
    out = []
    for computation in module.computations.values():
        at = {instruction.name: n for n, instruction in enumerate(computation.instructions)}
        for n, done in enumerate(computation.instructions):
            if not done.opcode.endswith("-done"):
                continue
            start: Instruction | None = done
            while start is not None and _ASYNC_END.search(start.opcode):
                start = computation.by_name.get(start.operands[0]) if start.operands else None
            if start is not None and start.opcode.endswith("-start"):
                between = tuple(i.name for i in computation.instructions[at[start.name] + 1 : n])
                out.append(AsyncPair(start, done, computation.name, between))
    return tuple(out)


def outer_frames(module: Module, computation: Computation, instruction: Instruction) -> tuple[Frame, ...]:
    """The frame chain through plain calls: before inlining, a callee's chain ends at its own function."""
    chain = list(module.own_frames(instruction))
    callers = _call_sites(module)
    seen: set[str] = set()
    while computation.name in callers and computation.name not in seen:
        seen.add(computation.name)
        computation, site = callers[computation.name]
        chain += module.own_frames(site)
    return tuple(chain)


def _call_sites(module: Module) -> dict[str, tuple[Computation, Instruction]]:
    """Where each computation is called from by `call`; left out where there are several places."""
    sites: dict[str, list[tuple[Computation, Instruction]]] = {}
    for computation, instruction in module.instructions():
        if instruction.opcode == "call":
            for _, callee in instruction.called:
                sites.setdefault(callee, []).append((computation, instruction))
    return {callee: found[0] for callee, found in sites.items() if len(found) == 1}
