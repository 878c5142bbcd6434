"""A kernel's scalar program, run over its whole grid at once: how often each condition fires, how often each block is fetched.

Only scalars are evaluated, from the body's own MLIR: grid indices, constants, and scalar-prefetch arrays whose values are known.
What depends on anything else is unknown, and said to be.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from kgagent.evidence.hlo import Computation, Instruction
from kgagent.evidence.shapes import leaves

MOST_POINTS = 4_000_000
_BODY = re.compile(r'"body":\s*"([A-Za-z0-9+/=]+)"')
_PLACE = re.compile(r'"([^"]+\.py)":(\d+)')
_NUMBERS = re.compile(r"-?\d+")
_MEMREF = re.compile(r"memref<((?:\d+x)*)([a-z]\w*)")
_CONSTANT = re.compile(r"= ([su]\d+|pred)\[([\d,]*)\](?:\{[^}]*\})? constant\((.*?)\)(?:, |$)", re.DOTALL)
_WORDS = re.compile(r"-?\d+|true|false")
_CARRIES = frozenset(("copy", "copy-start", "copy-done", "convert"))  # a reshape would need its array's new shape
_STEPS_BACK = 8
_BITS = {
    "i1": 8,
    "i4": 4,
    "i8": 8,
    "i16": 16,
    "i32": 32,
    "i64": 64,
    "bf16": 16,
    "f16": 16,
    "f32": 32,
    "f64": 64,
    "f8E4M3FN": 8,
    "f8E5M2": 8,
    "f8E4M3B11FNUZ": 8,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """An `scf.if` of the body: the share of grid steps in which it holds; None where it depends on what isn't known."""

    places: tuple[str, ...]  # path:line of its location, innermost first
    share: float | None
    depth: int


@dataclass(frozen=True, slots=True)
class Window:
    """A block of an operand or result: how often it moves between HBM and VMEM in one launch."""

    block: tuple[int, ...]
    block_bytes: int
    moves: int | None  # steps in which the block's index differs from the step before


@dataclass(frozen=True, slots=True)
class GridRun:
    """What one launch of a kernel does, as far as its scalars tell."""

    grid: tuple[int, ...]
    steps: int
    conditions: tuple[Condition, ...]
    windows: tuple[Window, ...]
    unknown: int  # conditions and windows that couldn't be evaluated


def constant_operands(computation: Computation, call: Instruction) -> dict[int, str]:
    """Operand position -> constant of a kernel launch, looked for through the copies that bring it near."""
    found = {position: _source(computation, name) for position, name in enumerate(call.operands)}
    return {position: source.name for position, source in found.items() if source is not None and source.opcode == "constant"}


def operand_values(computation: Computation, call: Instruction, constants: Mapping[str, str]) -> dict[int, Any]:
    """Operand position -> integer array, for constants, one value broadcast, and iotas; `constants` are their whole lines."""
    import numpy as np

    out: dict[int, Any] = {}
    for position, name in enumerate(call.operands):
        source = _source(computation, name)
        if source is None:
            continue
        value, shape = None, leaves(source.shape)[0] if leaves(source.shape) else None
        if source.opcode == "constant":
            value = literal(constants.get(source.name, source.text))
        elif source.opcode == "broadcast" and shape is not None and (inner := computation.by_name.get(source.operands[0])) is not None:
            scalar = literal(inner.text)
            value = np.full(shape.dims, int(scalar), dtype=np.int64) if scalar is not None and scalar.ndim == 0 and shape.elements <= MOST_POINTS else None
        elif source.opcode == "iota" and shape is not None and len(shape.dims) == 1:
            value = np.arange(shape.dims[0])
        if value is not None:
            out[position] = value
    return out


def _source(computation: Computation, name: str) -> Instruction | None:
    at = computation.by_name.get(name)
    for _ in range(_STEPS_BACK):
        if at is None or at.opcode not in _CARRIES or not at.operands:
            break
        at = computation.by_name.get(at.operands[0])
    return at


def literal(text: str) -> Any:
    """An integer array from a constant's printed line, values included; None for anything else."""
    import numpy as np

    found = _CONSTANT.search(text)
    if found is None or "..." in found.group(3):
        return None
    dims = [int(size) for size in found.group(2).split(",") if size]
    words = _WORDS.findall(found.group(3))
    values = [{"true": 1, "false": 0}.get(word, word) for word in words]
    if len(values) != prod(dims):
        return None
    return np.array([int(value) for value in values], dtype=np.int64).reshape(dims)


def run_grid(instruction: Instruction, prefetched: Mapping[int, Any]) -> GridRun | None:
    """Evaluate a custom call's body; `prefetched` are integer arrays of scalar-prefetch operands by position. None where it has no grid."""
    found = _BODY.search(instruction.text)
    if found is None:
        return None
    try:
        from jaxlib.mlir import ir
        from jaxlib.mlir._mlir_libs import _tpu_ext
    except ImportError:
        return None
    context = ir.Context()
    context.allow_unregistered_dialects = True
    _tpu_ext.register_dialect(context)
    try:
        with context:
            module = ir.Module.parse(base64.b64decode(found.group(1)))
            functions = {_attribute(op, "sym_name").strip('"'): op for op in module.body.operations}
            main = next((op for op in functions.values() if "iteration_bounds" in op.attributes), None)
            return _evaluate(main, functions, prefetched) if main is not None else None
    except (ir.MLIRError, ValueError, RuntimeError):
        return None


def _attribute(op: Any, name: str) -> str:
    return str(op.attributes[name]) if name in op.attributes else ""


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBERS.findall(text.partition(":")[2]))


def _evaluate(main: Any, functions: dict[str, Any], prefetched: Mapping[int, Any]) -> GridRun | None:
    import numpy as np

    grid = _integers(_attribute(main, "iteration_bounds"))
    steps = prod(grid)
    if not grid or steps > MOST_POINTS:
        return None
    indices = [axis.reshape(-1) for axis in np.indices(grid)] if steps else []  # row-major: the last dimension runs fastest
    count = int((_NUMBERS.findall(_attribute(main, "scalar_prefetch")) or ["0"])[0])
    block = main.regions[0].blocks[0]
    known: dict[Any, Any] = dict(zip(block.arguments, indices, strict=False))
    arrays = {argument: prefetched.get(n) for n, argument in enumerate(block.arguments[len(grid) : len(grid) + count])}
    conditions: list[Condition] = []
    _Body(np, steps, known, arrays, conditions).run(block, np.ones(steps, dtype=bool), 0)
    windows = _windows(np, main, functions, indices, count, prefetched)
    unknown = sum(c.share is None for c in conditions) + sum(w.moves is None for w in windows)
    return GridRun(grid, steps, tuple(conditions), windows, unknown)


class _Body:
    """Vector evaluation of one block's scalar operations; a value that isn't known is left out."""

    def __init__(self, np: Any, steps: int, known: dict[Any, Any], arrays: dict[Any, Any], conditions: list[Condition]) -> None:
        self.np, self.steps, self.known, self.arrays, self.conditions = np, steps, known, arrays, conditions
        self.returned: list[Any] = []

    def run(self, block: Any, mask: Any, depth: int) -> None:
        for op in block.operations:
            name = op.operation.name.removeprefix("stable_mosaic.")
            if name == "scf.if":
                self._if(op, mask, depth)
            elif name in ("func.return", "scf.yield"):
                self.returned = [self.known.get(operand) for operand in op.operands]
            elif len(op.results) == 1:
                value = self._value(name, op)
                if value is not None:
                    self.known[op.results[0]] = value
            if name not in ("scf.if", "scf.for", "scf.while") and len(op.regions):
                for region in op.regions:
                    for inner in region.blocks:
                        self.run(inner, mask, depth)

    def _if(self, op: Any, mask: Any, depth: int) -> None:
        predicate = self.known.get(op.operands[0])
        fires = mask & (predicate != 0) if predicate is not None and mask is not None else None
        places = tuple(f"{file}:{line}" for file, line in _PLACE.findall(str(op.location)))
        self.conditions.append(Condition(places, float(fires.mean()) if fires is not None else None, depth))
        for index, region in enumerate(op.regions):
            inside = fires if index == 0 or fires is None else mask & ~fires
            for block in region.blocks:
                self.run(block, inside, depth + 1)

    def _value(self, name: str, op: Any) -> Any:
        np = self.np
        if name == "arith.constant":
            text = str(op.attributes["value"])
            if text in ("true", "false"):
                return np.full(self.steps, text == "true", dtype=np.int64)
            found = re.match(r"(-?\d+) : (?:i\d+|index)$", text)
            return np.full(self.steps, int(found.group(1)), dtype=np.int64) if found else None
        if name == "memref.load":
            array = self.arrays.get(op.operands[0])
            at = [self.known.get(operand) for operand in list(op.operands)[1:]]
            if array is None or any(index is None for index in at) or len(at) != array.ndim:
                return None
            return array[tuple(np.clip(index, 0, size - 1) for index, size in zip(at, array.shape, strict=True))].astype(np.int64)
        operands = [self.known.get(operand) for operand in op.operands]
        if any(operand is None for operand in operands):
            return None
        if name == "arith.cmpi":
            return _COMPARE[int(_NUMBERS.findall(str(op.attributes["predicate"]))[0])](operands[0], operands[1]).astype(np.int64)
        if name in ("arith.extui", "arith.extsi", "arith.trunci", "arith.index_cast", "arith.index_castui"):
            return operands[0]
        if name == "arith.select":
            return np.where(operands[0] != 0, operands[1], operands[2])
        function = _BINARY.get(name)
        return function(np, operands[0], operands[1]) if function and len(operands) == 2 else None


_COMPARE: dict[int, Callable[[Any, Any], Any]] = {
    0: lambda a, b: a == b, 1: lambda a, b: a != b, 2: lambda a, b: a < b, 3: lambda a, b: a <= b, 4: lambda a, b: a > b, 5: lambda a, b: a >= b,
    6: lambda a, b: a < b, 7: lambda a, b: a <= b, 8: lambda a, b: a > b, 9: lambda a, b: a >= b,
}  # fmt: skip  # unsigned ones too: grid indices aren't negative


def _truncated(np: Any, a: Any, b: Any) -> Any:
    return (np.sign(a) * np.sign(b)) * (np.abs(a) // np.maximum(np.abs(b), 1))


_BINARY: dict[str, Callable[[Any, Any, Any], Any]] = {
    "arith.addi": lambda np, a, b: a + b,
    "arith.subi": lambda np, a, b: a - b,
    "arith.muli": lambda np, a, b: a * b,
    "arith.andi": lambda np, a, b: a & b,
    "arith.ori": lambda np, a, b: a | b,
    "arith.xori": lambda np, a, b: a ^ b,
    "arith.divsi": _truncated,
    "arith.divui": _truncated,
    "arith.floordivsi": lambda np, a, b: a // np.where(b == 0, 1, b),
    "arith.remsi": lambda np, a, b: a - b * _truncated(np, a, b),
    "arith.remui": lambda np, a, b: a - b * _truncated(np, a, b),
    "arith.minsi": lambda np, a, b: np.minimum(a, b),
    "arith.maxsi": lambda np, a, b: np.maximum(a, b),
    "arith.shli": lambda np, a, b: a << np.clip(b, 0, 62),
    "arith.shrsi": lambda np, a, b: a >> np.clip(b, 0, 62),
    "arith.shrui": lambda np, a, b: a >> np.clip(b, 0, 62),
}


def _windows(np: Any, main: Any, functions: dict[str, Any], indices: list[Any], count: int, prefetched: Mapping[int, Any]) -> tuple[Window, ...]:
    arguments = list(main.regions[0].blocks[0].arguments)[len(indices) + count :]
    out = []
    for argument, parameter in zip(arguments, main.attributes.get("window_params", ()), strict=False):
        text = str(parameter)
        bounds = re.search(r"window_bounds = array<i64: ([\d, ]+)>", text)
        transform = re.search(r"transform_indices = @(\w+)", text)
        if bounds is None:
            continue
        block = tuple(int(size) for size in bounds.group(1).split(","))
        element = _MEMREF.search(str(argument.type))
        block_bytes = prod(block) * _BITS.get(element.group(2) if element else "", 32) // 8
        moves = _moves(np, functions.get(transform.group(1)) if transform else None, indices, count, prefetched)
        out.append(Window(block, block_bytes, moves))
    return tuple(out)


def _moves(np: Any, function: Any, indices: list[Any], count: int, prefetched: Mapping[int, Any]) -> int | None:
    if function is None:
        return None
    block = function.regions[0].blocks[0]
    steps = len(indices[0]) if indices else 0
    known = dict(zip(block.arguments, indices, strict=False))
    arrays = {argument: prefetched.get(n) for n, argument in enumerate(list(block.arguments)[len(indices) : len(indices) + count])}
    body = _Body(np, steps, known, arrays, [])
    body.run(block, np.ones(steps, dtype=bool), 0)
    if any(value is None for value in body.returned) or not body.returned:
        return None
    stacked = np.stack([np.broadcast_to(value, (steps,)) for value in body.returned])
    return int(1 + (stacked[:, 1:] != stacked[:, :-1]).any(axis=0).sum())
