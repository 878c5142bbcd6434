"""What a `tpu_custom_call` carries: the kernel's Mosaic body as MLIR bytecode, read without importing jax.

Its text without locations is what tells two kernels apart; its locations are where the kernel's own lines are found.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from kgagent.evidence.frames import Frame
from kgagent.evidence.hlo import Instruction
from kgagent.evidence.pipeline import pipeline_of
from kgagent.objects import sha256_hex

_BODY = re.compile(r'"body":\s*"([A-Za-z0-9+/=]+)"')
_NAME = re.compile(r"^module @([\w.$\-]+)")
_SYMBOL = re.compile(r'sym_name = "([^"]+)"')
_GRID = re.compile(r"iteration_bounds = array<i64: ([\d, \-]+)>")
_WINDOW = re.compile(r"window_bounds = array<i64: ([\d, ]+)>")
_SCRATCH = re.compile(r"scratch_operands = (\d+)")
_PREFETCH = re.compile(r"scalar_prefetch = (\d+)")
_ARGUMENTS = re.compile(r"\^bb0\((.*?)\):", re.DOTALL)
_MEMREF = re.compile(r"memref<((?:\d+x)*)([a-z]\w*)[^#>]*#tpu\.memory_space<(\w+)>")
_PLACE = re.compile(r'loc\("([^"]+\.py)":(\d+)')
_WIDTH = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "bf16": 2, "f16": 2, "f32": 4, "f64": 8, "f8E4M3FN": 1, "f8E5M2": 1, "i4": 0.5, "i2": 0.25}


@dataclass(frozen=True, slots=True)
class KernelBody:
    """One kernel's body; what an old or foreign body doesn't say is None or empty."""

    name: str
    digest: str  # of the text without locations; of the raw bytes where `decoded` is False
    decoded: bool
    text: str  # MLIR without locations; "" where not decoded
    grid: tuple[int, ...] | None
    windows: tuple[tuple[int, ...], ...]  # block shapes of the grid's operands, in order
    buffers: tuple[int, ...]  # how many of each window a kernel that pipelines itself holds; () where the compiler decides
    scratch_bytes: int | None  # VMEM scratch operands, without window buffers
    prefetched: int  # scalar-prefetch operands
    frames: tuple[Frame, ...]  # distinct source lines in the body, in order of first use

    @property
    def steps(self) -> int | None:
        """Grid steps in one launch."""
        return prod(self.grid) if self.grid is not None else None


def body_of(instruction: Instruction) -> KernelBody | None:
    """The kernel body in a custom call's backend_config; None where it holds none."""
    found = _BODY.search(instruction.text)
    return _decode(found.group(1)) if found else None


def config_of(instruction: Instruction) -> dict[str, object]:
    """The backend_config as data; {} where it isn't JSON."""
    text = instruction.attribute("backend_config")
    try:
        config = json.loads(text) if text else {}
    except json.JSONDecodeError:
        return {}
    return config if isinstance(config, dict) else {}


@lru_cache(maxsize=512)
def _decode(encoded: str) -> KernelBody:
    try:
        raw = base64.b64decode(encoded)
    except binascii.Error:
        return _undecoded(encoded.encode())
    texts = _disassemble(raw)
    if texts is None:
        return _undecoded(raw)
    plain, located = texts
    head = plain[plain.rfind("function_type", 0, (plain.find("iteration_bounds") + 1) or len(plain)) :]
    module, grid, scratch, prefetch = _NAME.match(plain), _GRID.search(plain), _SCRATCH.search(plain), _PREFETCH.search(plain)
    symbol = _SYMBOL.search(head) or _SYMBOL.search(plain)
    name = module.group(1) if module else (symbol.group(1) if symbol else "")
    windows = tuple(_numbers(sizes) for sizes in _WINDOW.findall(plain))
    inner = pipeline_of(plain) if grid is None else None
    frames = tuple(dict.fromkeys(Frame(file, int(line)) for file, line in _PLACE.findall(located)))
    return KernelBody(
        name, sha256_hex(plain), True, plain, _numbers(grid.group(1)) if grid else (inner.grid if inner else None),
        inner.windows if inner else windows, inner.buffers if inner else (),
        _scratch_bytes(plain, int(scratch.group(1))) if scratch else None, int(prefetch.group(1)) if prefetch else 0, frames,
    )  # fmt: skip


def _undecoded(raw: bytes) -> KernelBody:
    return KernelBody("", sha256_hex(raw), False, "", None, (), (), None, 0, ())


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _scratch_bytes(text: str, operands: int) -> int | None:
    """VMEM bytes of the last operands, which are the scratch ones."""
    arguments = _ARGUMENTS.search(text)
    if arguments is None:
        return None
    total = 0.0
    for part in arguments.group(1).split("%arg")[1:][-operands:] if operands else []:
        found = _MEMREF.search(part)
        if found and found.group(3) == "vmem":
            total += prod(int(size) for size in found.group(1).split("x") if size) * _WIDTH.get(found.group(2), 4)
    return int(total)


def _disassemble(raw: bytes) -> tuple[str, str] | None:
    """(without locations, with locations), by jaxlib's own MLIR; None where it isn't there or can't read these bytes."""
    try:
        from jaxlib.mlir import ir
        from jaxlib.mlir._mlir_libs import _tpu_ext
    except ImportError:
        return None
    context = ir.Context()
    context.allow_unregistered_dialects = True
    _tpu_ext.register_dialect(context)  # its types stand inside memrefs, which must know them
    try:
        with context:
            operation = ir.Module.parse(raw).operation
            return operation.get_asm(enable_debug_info=False), operation.get_asm(enable_debug_info=True)
    except (ir.MLIRError, ValueError, RuntimeError):
        return None
