"""The grid and blocks of a kernel that pipelines itself (`emit_pipeline`): no attribute names them, its loop and buffers do."""

from __future__ import annotations

import re
from dataclasses import dataclass

_CONSTANT = re.compile(r'(%\w+) = (?:"stable_mosaic\.arith\.constant"\(\) |llo\.constant )\{value = (-?\d+) : i32\}')
_BINARY = re.compile(r'(%\w+) = "stable_mosaic\.arith\.(muli|addi|subi)"\((%\w+), (%\w+)\)')
_LOOP = re.compile(r'"stable_mosaic\.scf\.for"\((%\w+), (%\w+), (%\w+)')
_BUFFER = re.compile(r'memref\.alloca"\(\)[^\n]*-> memref<((?:\d+x)+)[a-z]\w*, #tpu\.memory_space<vmem>>')


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What a kernel's own loop runs over."""

    grid: tuple[int, ...]
    windows: tuple[tuple[int, ...], ...]
    buffers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Number:
    """A value with the factors it was multiplied from: the grid's dimensions."""

    value: int
    factors: tuple[int, ...]


def pipeline_of(text: str) -> Pipeline | None:
    """Read a decoded body; None where its first loop's bound is not a product of constants."""
    loop = _LOOP.search(text)
    if loop is None:
        return None
    known: dict[str, _Number] = {}
    for line in text[: loop.start()].splitlines():
        constant = _CONSTANT.search(line)
        binary = None if constant else _BINARY.search(line)
        if constant:
            value = int(constant.group(2))
            known[constant.group(1)] = _Number(value, () if value in (0, 1) else (value,))
        elif binary and binary.group(3) in known and binary.group(4) in known:
            known[binary.group(1)] = _apply(binary.group(2), known[binary.group(3)], known[binary.group(4)])
    bound, step = known.get(loop.group(2)), known.get(loop.group(3))
    if bound is None or step is None or step.value != 1:
        return None
    shapes = [tuple(int(size) for size in dims.split("x") if size) for dims in _BUFFER.findall(text)]
    return Pipeline(bound.factors or (bound.value,), tuple(shape[1:] for shape in shapes), tuple(shape[0] for shape in shapes))


def _apply(name: str, left: _Number, right: _Number) -> _Number:
    if name == "muli":
        return _Number(left.value * right.value, left.factors + right.factors)
    value = left.value + right.value if name == "addi" else left.value - right.value
    if right.value == 0:
        return _Number(value, left.factors)
    return _Number(value, right.factors if value == right.value else ())
