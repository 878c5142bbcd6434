"""HLO shapes as printed (`bf16[8,2048]{1,0:T(8,128)(2,1)S(1)}`, tuples with `/*index=5*/`) and what they occupy.

Shapes repeat thousands of times in a module, so each distinct text is parsed once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod

ELEMENT_BITS = {
    "pred": 8, "token": 0, "opaque": 0,
    "s1": 1, "u1": 1, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "s32": 32, "u32": 32, "s64": 64, "u64": 64,
    "f4e2m1fn": 4, "f8e3m4": 8, "f8e4m3": 8, "f8e4m3fn": 8, "f8e4m3b11fnuz": 8, "f8e4m3fnuz": 8, "f8e5m2": 8, "f8e5m2fnuz": 8, "f8e8m0fnu": 8,
    "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128,
}  # fmt: skip

_LEAF = re.compile(r"([a-z][a-z0-9]*)\[([^\]]*)\](?:\{([^{}]*)\})?|(token|opaque)\b")
_SPACE = re.compile(r"S\((\d+)\)")
_TILES = re.compile(r":.*?T((?:\([0-9,*]+\))+)")
_COMMENT = re.compile(r"/\*.*?\*/")


@dataclass(frozen=True, slots=True)
class Shape:
    """One array of a shape; `space` 0 is HBM, 1 is VMEM on a TPU."""

    dtype: str
    dims: tuple[int, ...]
    layout: str  # between the braces, as printed
    space: int

    @property
    def elements(self) -> int:
        return prod(self.dims)

    @property
    def data_bytes(self) -> int:
        """Bytes of the values, without the padding that tiling adds."""
        return (self.elements * ELEMENT_BITS.get(self.dtype, 0) + 7) // 8

    @property
    def padded_bytes(self) -> int:
        """Bytes with the two minor dimensions rounded up to the first tile, as a TPU lays them out."""
        found = _TILES.match(":" + self.layout.partition(":")[2]) if ":" in self.layout else None
        if found is None or not self.dims:
            return self.data_bytes
        order = [int(d) for d in self.layout.partition(":")[0].split(",") if d.strip().isdigit()]
        tile = [int(t) for t in found.group(1)[1:].partition(")")[0].split(",") if t.isdigit()]
        if len(order) != len(self.dims):
            return self.data_bytes
        padded = list(self.dims)
        for axis, size in zip(order, reversed(tile), strict=False):
            padded[axis] = -(-padded[axis] // size) * size
        return (prod(padded) * ELEMENT_BITS.get(self.dtype, 0) + 7) // 8


@lru_cache(maxsize=65536)
def leaves(text: str) -> tuple[Shape, ...]:
    """The arrays of a shape, tuples flattened in order; `f32[<=8]` counts as its bound."""
    if text.startswith("("):
        text = _COMMENT.sub("", text)
    found = []
    for dtype, dims, layout, bare in _LEAF.findall(text):
        if bare:
            found.append(Shape(bare, (), "", 0))
        elif dtype in ELEMENT_BITS or not dims or dims[0].isdigit() or dims[0] == "<":
            space = _SPACE.search(layout)
            sizes = tuple(int(d.strip().removeprefix("<=")) for d in dims.split(",") if d.strip().removeprefix("<=").isdigit())
            found.append(Shape(dtype, sizes, layout, int(space.group(1)) if space else 0))
    return tuple(found)


@lru_cache(maxsize=65536)
def data_bytes(text: str) -> int:
    """Bytes of a printed shape's values, a tuple's arrays summed."""
    return sum(leaf.data_bytes for leaf in leaves(text))


@lru_cache(maxsize=65536)
def without_layout(text: str) -> str:
    """`bf16[8,2048]{1,0:T(8,128)}` as `bf16[8,2048]`: what a person compares."""
    arrays = [leaf.dtype if leaf.dtype in ("token", "opaque") else f"{leaf.dtype}[{','.join(map(str, leaf.dims))}]" for leaf in leaves(text)]
    return f"({', '.join(arrays)})" if text.startswith("(") else (arrays[0] if arrays else text)
