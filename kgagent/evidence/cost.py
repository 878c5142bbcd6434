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
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute", "collective-broadcast", "send", "recv")
MOVES = frozenset(
    ("copy", "transpose", "reshape", "slice", "concatenate", "pad", "gather", "scatter", "dynamic-slice", "dynamic-update-slice", "reverse", "copy-start",
     "copy-done", "slice-start", "slice-done", "dynamic-reshape")
)  # fmt: skip
CONTROL = frozenset(("while", "conditional", "call", "infeed", "outfeed", "domain"))
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
    return sum(leaf.elements for leaf in leaves(instruction.shape))


def matmul_flops(computation: Computation, instruction: Instruction) -> int:
    """2 x output x contracted for a dot or convolution; 0 for anything else."""
    if instruction.opcode == "dot" and instruction.operands:
        left = first(computation, instruction.operands[0])
        found = _DIMS.match(instruction.attribute("lhs_contracting_dims") or "{}")
        axes = [int(axis) for axis in found.group(1).split(",") if axis] if found else []
        contracted = prod(left.dims[axis] for axis in axes if axis < len(left.dims)) if left else 1
        return 2 * output_elements(instruction) * contracted
    if instruction.opcode == "convolution" and len(instruction.operands) == 2:
        kernel = first(computation, instruction.operands[1])
        labels = _LABELS.search(instruction.attribute("dim_labels") or "")
        if kernel is None or labels is None or len(labels.group(2)) != len(kernel.dims):
            return 0
        # a batch dimension comes as a spatial one whose window is mostly padding: only real products count
        window = instruction.attribute("window") or ""
        padded = "lhs_dilate" in window or "pad=" in window
        sizes = dict(zip(labels.group(2), kernel.dims, strict=True))
        spatial = 1 if padded else prod(size for label, size in sizes.items() if label.isdigit())
        return 2 * output_elements(instruction) * sizes.get("i", 1) * spatial
    return 0


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
