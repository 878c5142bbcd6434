"""Pallas kernels in a module: custom calls by kernel name, never by the mere presence of `tpu_custom_call`.

The compiler writes custom calls of its own (`online-softmax`, `Sharding`); a kernel is told by target and by its pallas_call name stack.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kgagent.evidence.hlo import Computation, Instruction, Module

KERNEL_TARGETS = frozenset(("tpu_custom_call", "mosaic_gpu", "mosaic_gpu_v2", "__gpu$xla.gpu.triton", "triton_kernel_call"))
_SUFFIX = re.compile(r"(?:\.\d+|\.clone|\.remat\d*)+$")


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One launch in a module."""

    kernel: str
    instruction: Instruction
    computation: str


def kernel_name(instruction: Instruction) -> str:
    """The kernel a custom call launches: the compiler names the instruction after it and numbers repeats."""
    return _SUFFIX.sub("", instruction.name)


def is_kernel(instruction: Instruction) -> bool:
    """Whether it launches a kernel somebody wrote in Pallas, rather than one the compiler put in."""
    return instruction.opcode in ("custom-call", "custom-call-start") and instruction.target in KERNEL_TARGETS


def kernel_calls(module: Module) -> tuple[KernelCall, ...]:
    """Launches in printed order."""
    return tuple(KernelCall(kernel_name(i), i, c.name) for c, i in _custom_calls(module) if is_kernel(i))


def _custom_calls(module: Module) -> list[tuple[Computation, Instruction]]:
    return [(computation, i) for computation, i in module.instructions() if i.opcode in ("custom-call", "custom-call-start")]
