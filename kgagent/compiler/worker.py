"""The process that compiles: `python -m kgagent.compiler.worker FOLDER`, alone because libtpu may abort whoever loads it.

FOLDER holds `exported.bin` and `request.json`; `stage` says how far it came, `result.json` and `hlo.txt` what came out.
"""

from __future__ import annotations

import json
import re
import struct
import sys
import time
from pathlib import Path
from typing import Any

DONATED = re.compile(r"%arg(\d+): [^%]*?(?:tf\.aliasing_output|jax\.buffer_donor)")
MOST_CONSTANTS = 2**22  # elements in a module; beyond it their text is not worth its memory
SIXTY_FOUR_BIT = {"int64", "uint64", "float64", "complex128"}


class Stop(Exception):
    """An answer that ends the work early: a kind and a message for the parent to judge."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def main(folder: Path) -> None:
    """Do the work and write the answer; anything unforeseen ends the process with a traceback on stderr."""
    request = json.loads((folder / "request.json").read_text())
    try:
        answer = compile_exported(folder, request)
    except Stop as stop:
        answer = {"status": "stopped", "kind": stop.kind, "message": stop.message}
    (folder / "result.json").write_text(json.dumps(answer))


def compile_exported(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Topology, program, compile, in that order: the cheap refusals first."""
    stage(folder, "import")
    import jax

    from kgagent.compiler.target import describe

    stage(folder, "topology")
    try:
        topology = describe(request["topology"])
    except (jax.errors.JaxRuntimeError, RuntimeError, ValueError) as error:
        raise Stop("topology", str(error)) from error
    stage(folder, "read")
    exported = read_exported(folder / "exported.bin")
    if exported.nr_devices > len(topology.devices):
        raise Stop("devices", f"the program is for {exported.nr_devices} devices, the topology has {len(topology.devices)}")
    stage(folder, "lower")
    base = {"device_kind": topology.devices[0].device_kind, "devices": exported.nr_devices}
    try:
        lowered = lower(exported, topology.devices)
    except (jax.errors.JAXTypeError, jax.errors.JaxRuntimeError, TypeError, ValueError, NotImplementedError) as error:
        if "deserialize StableHLO" in str(error):
            raise Stop("unreadable", str(error)) from error
        return {**base, "status": "blocked", "stage": "lower", "message": f"{type(error).__name__}: {error}", "frames": [], "compile_s": 0.0}
    stage(folder, "compile")
    started = time.monotonic()
    try:
        compiled = lowered.compile()
    except (jax.errors.JaxRuntimeError, RuntimeError, ValueError) as error:
        seconds = time.monotonic() - started
        return {**base, "status": "blocked", "stage": "compile", "message": str(error), "frames": frames_of(lowered, str(error)), "compile_s": seconds}
    seconds = time.monotonic() - started
    stage(folder, "answer")
    text = compiled.as_text()
    (folder / "hlo.txt").write_text(text)
    return {**base, "status": "ok", "constants": constants_of(compiled, text), "compile_s": seconds, "memory": memory_of(compiled), "cost": cost_of(compiled)}


def stage(folder: Path, name: str) -> None:
    """Leave word of how far this came: an abort leaves nothing else."""
    (folder / "stage").write_text(name)


def read_exported(path: Path) -> Any:
    """The exported program; what isn't one, or isn't for a TPU, stops here."""
    import jax
    from jax import export

    try:
        exported = export.deserialize(bytearray(path.read_bytes()))
    except (struct.error, ValueError, KeyError, AssertionError, TypeError, IndexError, NotImplementedError, OverflowError) as error:
        raise Stop("unreadable", f"{type(error).__name__}: {error}") from error
    if "tpu" not in exported.platforms:
        raise Stop("platform", f"the program was exported for {', '.join(exported.platforms)}, not for tpu")
    if any(str(aval.dtype) in SIXTY_FOUR_BIT for aval in (*exported.in_avals, *exported.out_avals)):
        jax.config.update("jax_enable_x64", True)
    return exported


def lower(exported: Any, devices: list[Any]) -> Any:
    """Lower a call of the program for the topology's devices, under the program's own name."""
    import jax
    import numpy as np

    if exported.nr_devices == 1:
        one = jax.sharding.SingleDeviceSharding(devices[0])
        shardings = [one] * len(exported.in_avals)
    else:
        sizes, names, types = mesh_axes(exported)
        mesh = jax.sharding.Mesh(np.array(devices[: exported.nr_devices]).reshape(sizes), names, axis_types=types)
        whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        shardings = [sharding or whole for sharding in exported.in_shardings_jax(mesh)]
    flat = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding) for aval, sharding in zip(exported.in_avals, shardings, strict=True)]

    def program(*flat: Any) -> Any:
        args, kwargs = jax.tree.unflatten(exported.in_tree, flat)
        return exported.call(*args, **kwargs)

    program.__name__ = program.__qualname__ = exported.fun_name or "program"
    return jax.jit(program, donate_argnums=donated(exported)).trace(*flat).lower(lowering_platforms=("tpu",))


def donated(exported: Any) -> tuple[int, ...]:
    """Flat arguments that were donated when the program was exported; a call of it would forget them."""
    main = next((line for line in exported.mlir_module().splitlines() if "func.func public @main(" in line), "")
    kept = exported.module_kept_var_idx
    return tuple(kept[int(number)] for number in DONATED.findall(main) if int(number) < len(kept))


def mesh_axes(exported: Any) -> tuple[tuple[int, ...], tuple[str, ...], tuple[Any, ...] | None]:
    """The mesh the program was exported under; older serialisations don't keep it, and any mesh of that size fits them."""
    for aval in exported.in_avals:
        mesh = getattr(getattr(aval, "sharding", None), "mesh", None)
        if mesh is not None and not mesh.empty and mesh.size == exported.nr_devices:
            return tuple(mesh.axis_sizes), tuple(mesh.axis_names), tuple(mesh.axis_types)
    return (exported.nr_devices,), ("device",), None


def frames_of(lowered: Any, message: str) -> list[str]:
    """The source frames of the operation a message names, from the program before optimisation."""
    from kgagent.compiler.messages import refusal
    from kgagent.errors import EvidenceError
    from kgagent.evidence.calls import outer_frames
    from kgagent.evidence.hlo import parse_hlo

    name = refusal(message, stage="compile").op_name
    if not name:
        return []
    try:
        module = parse_hlo(lowered.as_text("hlo", debug_info=True))
    except (EvidenceError, TypeError, ValueError):
        return []
    best: tuple[int, list[str]] = (0, [])
    for computation, instruction in module.instructions():
        own = instruction.op_name
        if own and (own == name or name.endswith("/" + own.split("/", 1)[-1])) and len(own) > best[0]:
            frames = [frame.place for frame in outer_frames(module, computation, instruction)]
            best = (len(own), frames) if frames else best
    return best[1]


def constants_of(compiled: Any, text: str) -> dict[str, str]:
    """Whole lines of the constants that kernels are launched with: the text leaves their values out, and grids are read by them."""
    from kgagent.errors import EvidenceError
    from kgagent.evidence.grid import constant_operands
    from kgagent.evidence.hlo import parse_hlo
    from kgagent.evidence.kernels import kernel_calls
    from kgagent.evidence.shapes import leaves

    try:
        from jaxlib._hlo import HloPrintOptions

        module = parse_hlo(text)
        modules = compiled.runtime_executable().hlo_modules()
    except (ImportError, EvidenceError, AttributeError, NotImplementedError):
        return {}
    wanted = {name for call in kernel_calls(module) for name in constant_operands(module.computations[call.computation], call.instruction).values()}
    printed = sum(leaf.elements for _, i in module.instructions() if i.opcode == "constant" for leaf in leaves(i.shape))
    if not wanted or printed > MOST_CONSTANTS:
        return {}
    options = HloPrintOptions()
    options.print_large_constants = True
    whole = parse_hlo(modules[0].to_string(options))
    return {i.name: i.text for _, i in whole.instructions() if i.name in wanted}


def memory_of(compiled: Any) -> dict[str, int | None] | None:
    """The memory analysis, by our names; None where the compiler gives none."""
    found = compiled.memory_analysis()
    if found is None:
        return None
    return {
        "argument_bytes": found.argument_size_in_bytes,
        "output_bytes": found.output_size_in_bytes,
        "alias_bytes": found.alias_size_in_bytes,
        "temp_bytes": found.temp_size_in_bytes,
        "peak_bytes": getattr(found, "peak_memory_in_bytes", None),
        "generated_code_bytes": found.generated_code_size_in_bytes,
    }


def cost_of(compiled: Any) -> dict[str, float | None]:
    """FLOPs and bytes as the compiler counts them; absent keys stay None."""
    found = compiled.cost_analysis()
    facts = found[0] if isinstance(found, list) and found else found
    facts = facts if isinstance(facts, dict) else {}
    return {"flops": facts.get("flops"), "bytes_accessed": facts.get("bytes accessed")}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
