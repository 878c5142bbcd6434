"""Analytic work of an instruction: FLOPs of matrix products, elements of everything else. Static, never measured."""

from __future__ import annotations

import re
from math import prod

from kgagent.evidence.hlo import Computation, Instruction
from kgagent.evidence.shapes import Shape, leaves

FREE = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier", "optimization-barrier", "partition-id", "replica-id",
     "add-dependency", "get-dimension-size", "iota", "broadcast")
)  # fmt: skip
HIDDEN = frozenset(("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier", "optimization-barrier"))  # no code
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute", "collective-broadcast", "send", "recv")
MOVES = frozenset(
    ("copy", "transpose", "reshape", "slice", "concatenate", "pad", "gather", "scatter", "dynamic-slice", "dynamic-update-slice", "reverse", "copy-start",
     "copy-done", "slice-start", "slice-done", "dynamic-reshape")
)  # fmt: skip
CONTROL = frozenset(("while", "conditional", "call", "infeed", "outfeed", "domain"))
_MOST_POSITIONS = 1_000_000
_DIMS = re.compile(r"\{([\d,]*)\}")
_LABELS = re.compile(r"(\w+)_(\w+)->(\w+)")


def base_opcode(opcode: str) -> str:
    """`all-gather-start` as `all-gather`: both halves of an asynchronous operation are of its class."""
    return opcode.removesuffix("-start").removesuffix("-done").removesuffix("-update")


def first(computation: Computation, name: str) -> Shape | None:
    """The first array of an instruction's result."""
    found = computation.by_name.get(name)
    arrays = leaves(found.shape) if found else ()
    return arrays[0] if arrays else None


def output_elements(instruction: Instruction) -> int:
    """Elements of the result, a tuple's arrays summed."""
    return sum(leaf.elements for leaf in leaves(instruction.shape))


def matmul_flops(computation: Computation, instruction: Instruction) -> int:
    """2 x output x contracted for a dot or convolution; 0 for anything else."""
    if instruction.opcode == "dot" and instruction.operands:
        left = first(computation, instruction.operands[0])
        found = _DIMS.match(instruction.attribute("lhs_contracting_dims") or "{}")
        axes = [int(axis) for axis in found.group(1).split(",") if axis] if found else []
        contracted = prod(left.dims[axis] for axis in axes if axis < len(left.dims)) if left else 1
        return 2 * output_elements(instruction) * int(contracted)
    if instruction.opcode == "convolution" and len(instruction.operands) == 2:
        return _convolution_flops(computation, instruction)
    return 0


def _convolution_flops(computation: Computation, instruction: Instruction) -> int:
    """Real products only: a TPU writes batch dimensions as spatial ones whose windows are mostly padding."""
    left, kernel = (first(computation, name) for name in instruction.operands)
    out = leaves(instruction.shape)
    labels = _LABELS.search(instruction.attribute("dim_labels") or "")
    if left is None or kernel is None or labels is None or not out:
        return 0
    sides = [dict(zip(names, shape.dims, strict=False)) for names, shape in zip(labels.groups(), (left, kernel, out[0]), strict=True)]
    window = _window(instruction.attribute("window") or "")
    flops: int = 2 * out[0].elements * sides[1].get("i", 1)
    for n, label in enumerate(sorted(label for label in sides[2] if label.isdigit())):
        facts = {name: values[n] for name, values in window.items() if n < len(values)}
        pairs = _real_products(sides[0].get(label, 1), sides[1].get(label, 1), sides[2][label], facts)
        flops = flops * pairs // max(1, sides[2][label])
    return flops


def _window(text: str) -> dict[str, list[str]]:
    """`{size=2x8 stride=1x7}` as lists a dimension."""
    return {name: values.split("x") for name, values in (part.split("=", 1) for part in text.strip("{}").split() if "=" in part)}


def _real_products(left: int, kernel: int, out: int, facts: dict[str, str]) -> int:
    """(output, window) positions of one dimension that meet an element rather than padding or a dilation's hole."""
    stride, dilate, spread = (int(facts.get(name, 1)) for name in ("stride", "lhs_dilate", "rhs_dilate"))
    low = int(facts.get("pad", "0_0").split("_")[0])
    if out * kernel > _MOST_POSITIONS:
        return out * min(left, kernel)
    last = (left - 1) * dilate
    return sum(0 <= (at := o * stride + k * spread - low) <= last and at % dilate == 0 for o in range(out) for k in range(kernel))


def work(computation: Computation, instruction: Instruction) -> float:
    """One number to weigh the parts of a fusion by: products, then elements read or written."""
    if instruction.opcode in FREE:
        return 0.0
    flops = matmul_flops(computation, instruction)
    if flops:
        return float(flops)
    if instruction.opcode in ("reduce", "reduce-window", "select-and-scatter") and instruction.operands:
        source = first(computation, instruction.operands[0])
        return float(max(source.elements if source else 0, output_elements(instruction)))
    scale = 0.5 if instruction.opcode in MOVES else 1.0
    return scale * output_elements(instruction)
