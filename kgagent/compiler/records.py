"""What a compilation answers, as records; unknown is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass

BLIND_SPOT = "cost_analysis sees nothing inside custom calls"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing came out, as data; what the message didn't say stays empty."""

    kind: str  # vmem_oom, hbm_oom, oom, unknown_flag, bad_flag, mosaic, refused, aborted, timeout, memory
    what: str  # one line for a person
    message: str  # the compiler's own, whole
    stage: str  # flags, read, lower, compile
    space: str = ""  # hbm, vmem, smem …
    asked_bytes: int | None = None
    limit_bytes: int | None = None
    allocation: str = ""  # HLO instruction or buffer asked for
    shape: str = ""
    op_name: str = ""
    line: str = ""  # path:line, innermost frame
    frames: tuple[str, ...] = ()  # path:line, innermost first
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """The compiler's memory analysis of one device."""

    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temp_bytes: int
    peak_bytes: int | None
    generated_code_bytes: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """One ahead-of-time compilation; everything in it is predicted, nothing was run."""

    status: str  # ok, blocked
    topology: str
    device_kind: str
    devices: int  # devices the program was compiled for
    flags: tuple[tuple[str, str], ...]
    error: Refusal | None
    hlo_text: str  # optimized HLO; "" when blocked
    memory: Memory | None
    flops: float | None
    bytes_accessed: float | None
    cost_note: str  # what flops and bytes don't count; "" where they count all
    kernels: tuple[str, ...]  # names of custom calls to Pallas kernels, in order, repeats kept
    constants: tuple[tuple[str, str], ...]  # whole lines of the constants that kernels are launched with
    compile_s: float
    wall_s: float  # the whole subprocess
    jax: str
    libtpu: str
    exported_sha: str
    log: str  # the end of what libtpu and jax printed
    cached: bool = False


@dataclass(frozen=True, slots=True)
class CompilerStatus:
    """What doctor says: is the TPU compiler here, and what to do when it isn't."""

    available: bool
    jax: str | None
    jaxlib: str | None
    libtpu: str | None
    hint: str
