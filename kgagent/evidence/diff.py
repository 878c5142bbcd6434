"""Two modules set side by side: instructions that came, went, changed or moved, by op class and by source line.

Instructions are matched by what they compute, not by name: names and order change with every compile.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from kgagent.evidence.attribution import Attribution
from kgagent.evidence.canonical import canonical_digest, tail
from kgagent.evidence.cost import HIDDEN
from kgagent.evidence.hlo import Computation, Instruction, Module
from kgagent.evidence.kernels import is_kernel, kernel_name
from kgagent.evidence.shapes import leaves, without_layout
from kgagent.objects import sha256_hex

_UNIT_DIM = re.compile(r"(?<=[\[,])1(?:,|(?=\]))")
_ALIASES = frozenset(("while", "conditional", "call", "async-update"))  # their results are buffers made elsewhere


@dataclass(frozen=True, slots=True)
class OpRow:
    """One executed instruction of one side."""

    name: str
    computation: str
    opcode: str
    op_class: str
    shape: str  # without layout
    output_bytes: int
    times: int  # in one execution of the module
    kernel: str
    line: str  # path:line of the dominant origin's innermost frame; "" where unknown
    frames: tuple[str, ...]  # path:line, innermost first


@dataclass(frozen=True, slots=True)
class Buffer:
    """An array that is written to memory, with the instruction and line that write it."""

    name: str
    shape: str
    buffer_bytes: int
    space: int  # 0 HBM, 1 VMEM
    line: str
    frames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """One row of a table: how many instructions and bytes of a class or line went and came."""

    key: str
    went: int
    came: int
    went_bytes: int
    came_bytes: int


@dataclass(frozen=True, slots=True)
class ModuleDiff:
    """From `a` (before, reference) to `b` (after, candidate)."""

    equal: bool  # canonical forms are the same
    same: int
    moved: int  # same instruction, in another computation
    changed: tuple[tuple[OpRow, OpRow], ...]  # same opcode, shape and line; other attributes or layout
    went: tuple[OpRow, ...]
    came: tuple[OpRow, ...]
    by_class: tuple[Delta, ...]
    by_line: tuple[Delta, ...]
    buffers_went: tuple[Buffer, ...]  # largest first
    buffers_came: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class _Op:
    row: OpRow
    fingerprint: str
    place: str  # computation's role: entry or loop body, so that a hoisted instruction is seen as moved


def executed_rows(attribution: Attribution) -> tuple[OpRow, ...]:
    """Every instruction that runs by itself, free ones left out, in call order."""
    return tuple(op_row(attribution, c, i, count.times) for c, i, count in attribution.executed() if i.opcode not in HIDDEN)


def op_row(attribution: Attribution, computation: Computation, instruction: Instruction, times: int) -> OpRow:
    """An instruction as a row, with its dominant line."""
    origins = attribution.origins(computation, instruction)
    frames = tuple(frame.place for frame in origins[0].frames) if origins else ()
    kernel = kernel_name(instruction) if is_kernel(instruction) else ""
    return OpRow(
        instruction.name, computation.name, instruction.opcode, attribution.op_class(computation, instruction), without_layout(instruction.shape),
        _result_bytes(instruction), times, kernel, frames[0] if frames else "", frames,
    )  # fmt: skip


def _result_bytes(instruction: Instruction) -> int:
    """Bytes written: a start's tuple also names its source, and is counted at its done."""
    if instruction.opcode.endswith("-start") or instruction.opcode in _ALIASES:
        return 0
    return instruction.output_bytes


def buffers(attribution: Attribution) -> tuple[Buffer, ...]:
    """Arrays written by executed instructions, largest first."""
    found = []
    for computation, instruction, _ in attribution.executed():
        if instruction.opcode in HIDDEN or instruction.opcode in _ALIASES or instruction.opcode.endswith("-start"):
            continue
        origins = attribution.origins(computation, instruction)
        frames = tuple(frame.place for frame in origins[0].frames) if origins else ()
        for leaf in leaves(instruction.shape):
            shape = f"{leaf.dtype}[{','.join(map(str, leaf.dims))}]"
            found.append(Buffer(instruction.name, shape, leaf.data_bytes, leaf.space, frames[0] if frames else "", frames))
    return tuple(sorted(found, key=lambda buffer: (-buffer.buffer_bytes, buffer.name)))


def diff(a: Module, b: Module) -> ModuleDiff:
    """What changed from `a` to `b`."""
    before, after = Attribution(a), Attribution(b)
    old, new = _ops(before), _ops(after)
    here, there, same, moved = _match_exact(old, new)
    changed, went, came = _match_similar(here, there)
    buffers_went, buffers_came = _buffer_change(buffers(before), buffers(after))
    return ModuleDiff(
        canonical_digest(a) == canonical_digest(b), same, moved, tuple(changed), tuple(went), tuple(came),
        _table(went, came, lambda row: row.op_class), _table(went, came, lambda row: row.line or "(no line)"), buffers_went, buffers_came,
    )  # fmt: skip


def _ops(attribution: Attribution) -> list[_Op]:
    digests: dict[str, str] = {}
    entry = attribution.module.entry.name
    out = []
    for computation, instruction, count in attribution.executed():
        if instruction.opcode not in HIDDEN:
            row = op_row(attribution, computation, instruction, count.times)
            place = "entry" if computation.name == entry else f"called x{count.times}"
            out.append(_Op(row, _fingerprint(attribution.module, computation, instruction, digests), place))
    return out


def _fingerprint(module: Module, computation: Computation, instruction: Instruction, digests: dict[str, str]) -> str:
    """What an instruction computes: opcode, shapes, attributes and the content of what it calls."""
    names = {name: _digest(module, name, digests) for _, name in instruction.called}
    operands = [found.shape for name in instruction.operands if (found := computation.by_name.get(name)) is not None]
    args = ", ".join(operands) if operands else instruction.args
    return f"{instruction.shape} {instruction.opcode}({args}){tail(instruction, names)}"


def _digest(module: Module, name: str, digests: dict[str, str]) -> str:
    computation = module.computations.get(name)
    if computation is None:
        return name
    if name not in digests:
        digests[name] = ""  # recursion can't occur in HLO; damaged text ends here
        numbers = {instruction.name: f"i{n}" for n, instruction in enumerate(computation.instructions)}
        lines = []
        for instruction in computation.instructions:
            names = {callee: _digest(module, callee, digests) for _, callee in instruction.called}
            args = ", ".join(numbers.get(operand, operand) for operand in instruction.operands) or instruction.args
            lines.append(f"{instruction.shape} {instruction.opcode}({args}){tail(instruction, {**numbers, **names})}")
        digests[name] = sha256_hex("\n".join(lines))[:16]
    return digests[name]


def _match_exact(old: list[_Op], new: list[_Op]) -> tuple[list[_Op], list[_Op], int, int]:
    """Take out what is equal in place, then what is equal elsewhere; returns the rest of both sides."""
    old, new, same = _take(old, new, lambda op: (op.fingerprint, op.place))
    old, new, moved = _take(old, new, lambda op: op.fingerprint)
    return old, new, same, moved


def _take(old: list[_Op], new: list[_Op], of: Callable[[_Op], Hashable]) -> tuple[list[_Op], list[_Op], int]:
    """Both sides without the pairs that have equal keys, and how many pairs that were."""
    available = Counter(of(op) for op in new)
    kept, used = [], Counter[Hashable]()
    for op in old:
        if available[of(op)] > used[of(op)]:
            used[of(op)] += 1
        else:
            kept.append(op)
    taken = sum(used.values())
    rest = []
    for op in new:
        if used[of(op)]:
            used[of(op)] -= 1
        else:
            rest.append(op)
    return kept, rest, taken


def _match_similar(old: list[_Op], new: list[_Op]) -> tuple[list[tuple[OpRow, OpRow]], list[OpRow], list[OpRow]]:
    """Pair what has the same class, shape, kernel and line but other attributes."""
    waiting: dict[tuple[str, ...], list[OpRow]] = defaultdict(list)
    for op in new:
        waiting[_likeness(op.row)].append(op.row)
    changed, went = [], []
    for op in old:
        candidates = waiting[_likeness(op.row)]
        if candidates:
            changed.append((op.row, candidates.pop(0)))
        else:
            went.append(op.row)
    left = {id(row) for rows in waiting.values() for row in rows}
    return changed, went, [op.row for op in new if id(op.row) in left]


def _likeness(row: OpRow) -> tuple[str, ...]:
    return (row.opcode, row.op_class, row.shape, row.kernel, row.line)


def _table(went: list[OpRow], came: list[OpRow], of: Callable[[OpRow], str]) -> tuple[Delta, ...]:
    """Went and came summed by a key, largest change in bytes first."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for side, rows in enumerate((went, came)):
        for row in rows:
            sums[of(row)][side] += 1
            sums[of(row)][side + 2] += row.output_bytes * row.times
    rows_out = [Delta(name, *numbers) for name, numbers in sums.items()]
    return tuple(sorted(rows_out, key=lambda d: (-abs(d.came_bytes - d.went_bytes), -max(d.came_bytes, d.went_bytes), d.key)))


def _buffer_change(old: Iterable[Buffer], new: Iterable[Buffer]) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
    """Buffers of one side without a counterpart of the same shape and memory space on the other."""
    old, new = tuple(old), tuple(new)

    def alike(buffer: Buffer) -> tuple[str, int]:
        return _UNIT_DIM.sub("", buffer.shape), buffer.space  # a leading 1 makes no other buffer

    def missing(mine: tuple[Buffer, ...], others: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        available = Counter(alike(buffer) for buffer in others)
        out = []
        for buffer in mine:
            if available[alike(buffer)]:
                available[alike(buffer)] -= 1
            else:
                out.append(buffer)
        return tuple(out)

    return missing(old, new), missing(new, old)
