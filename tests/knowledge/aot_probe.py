"""Compiles small programs for TPU topologies, with no TPU, and prints what the compiler said as one line of JSON.

Run as a script in its own process: libtpu talks on start-up, and options are read once a process.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

os.environ |= {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "cpu"}

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental import topologies
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

SMALL = ("v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2", "tpu7x:2x2x1")
MIB = 2**20
of = jax.ShapeDtypeStruct


def topology(name: str) -> Any:
    return topologies.get_topology_desc(platform="tpu", topology_name=name)


def compiled(function: Callable[..., Any], arguments: Sequence[Any], name: str = "v6e:2x2", *, options: dict[str, str] | None = None, **jit: Any) -> Any:
    sharding = SingleDeviceSharding(topology(name).devices[0])
    placed = jax.tree.map(lambda leaf: of(leaf.shape, leaf.dtype, sharding=sharding), arguments)
    return jax.jit(function, **jit).trace(*placed).lower(lowering_platforms=("tpu",)).compile(compiler_options=options)


def error_of(function: Callable[[], Any]) -> str:
    try:
        function()
    except jax.errors.JaxRuntimeError as error:
        return str(error)
    return ""


def windows(mib: int) -> tuple[Callable[[jax.Array], jax.Array], Any]:
    """A copying kernel whose input and output windows are `mib` each, so that it wants four times that."""
    rows = mib * MIB // 512
    spec = pl.BlockSpec((rows, 128), lambda i: (i, 0))
    whole = of((rows * 4, 128), jnp.float32)

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    return lambda x: pl.pallas_call(body, grid=(4,), in_specs=[spec], out_specs=spec, out_shape=whole)(x), whole


def scratch(mib: int) -> Callable[[jax.Array], jax.Array]:
    """A kernel that wants one scratch allocation of `mib`."""

    def body(x_ref: Any, o_ref: Any, scratch_ref: Any) -> None:
        scratch_ref[...] = jnp.zeros_like(scratch_ref)
        o_ref[...] = x_ref[...] + scratch_ref[0:8, 0:128]

    shapes = [pltpu.VMEM((mib * MIB // 512, 128), jnp.float32)]
    return lambda x: pl.pallas_call(body, out_shape=of((8, 128), jnp.float32), scratch_shapes=shapes)(x)


def devices() -> dict[str, Any]:
    found = {}
    for name in SMALL:
        every = topology(name).devices
        found[name] = {"devices": len(every), "chips": len({tuple(d.coords) for d in every}), "cores": every[0].num_cores, "kind": every[0].device_kind}
    return found


def limits() -> dict[str, Any]:
    found: dict[str, Any] = {}
    tile, huge = of((8, 128), jnp.float32), of((400 * 1024, 1024, 1024), jnp.bfloat16)
    for name in SMALL:
        kernel, whole = windows(12)
        scoped = error_of(partial(compiled, kernel, [whole], name))
        raised = error_of(partial(compiled, kernel, [whole], name, options={"xla_tpu_scoped_vmem_limit_kib": "131072"}))
        vmem = error_of(partial(compiled, scratch(300), [tile], name))
        hbm = error_of(partial(compiled, lambda x: x + 1, [huge], name))
        unknown = error_of(partial(compiled, lambda x: x + 1, [tile], name, options={"xla_tpu_no_such_flag": "1"}))
        found[name] = {
            "scoped_mib": [float(x) for x in re.findall(r"limit (\d+\.\d+)M", scoped)],
            "raised": raised,
            "vmem_bytes": [int(x) for x in re.findall(r"exceed memory \(size=(\d+)\)", vmem)],
            "hbm_gib": [float(x) for x in re.findall(r"exceeds available HBM \((\d+\.\d+)G\)", hbm)],
            "unknown": unknown,
        }
    return found


def flags() -> dict[str, str]:
    names = (
        "xla_tpu_enable_latency_hiding_scheduler",
        "xla_tpu_scheduler_percent_shared_memory_limit",
        "xla_tpu_enable_sparse_core_collective_offload_all_gather",
    )
    tile = of((8, 128), jnp.float32)
    return {name: error_of(partial(compiled, lambda x: x + 1, [tile], options={name: "95" if "percent" in name else "true"})) for name in names}


def splash_kernel(heads: int, length: int, block: int) -> Callable[..., jax.Array]:
    mask = masks.MultiHeadMask([masks.CausalMask((length, length))] * heads)
    sizes = splash.BlockSizes(block_q=block, block_kv=block, block_kv_compute=block)
    kernel = splash.make_splash_mha_single_device(mask, block_sizes=sizes)
    return lambda q, k, v: kernel(q, k, v)


def attention() -> dict[str, Any]:
    heads, groups, length, width = 32, 8, 8192, 128
    q, k = of((heads, length, width), jnp.bfloat16), of((groups, length, width), jnp.bfloat16)

    def einsum(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        q = q.reshape(groups, heads // groups, length, width)
        scores = jnp.einsum("kgqd,ktd->kgqt", q, k, preferred_element_type=jnp.float32)
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e30)
        weights = jax.nn.softmax(scores, -1).astype(q.dtype)
        return jnp.einsum("kgqt,ktd->kgqd", weights, v).reshape(heads, length, width)

    found: dict[str, Any] = {}
    for name, function in (("einsum", einsum), ("splash 512", splash_kernel(heads, length, 512)), ("splash 1024", splash_kernel(heads, length, 1024))):
        program = compiled(function, [q, k, k])
        found[name] = {"temp_mib": program.memory_analysis().temp_size_in_bytes / MIB, "flops": program.cost_analysis().get("flops")}
    found["splash 4096"] = error_of(partial(compiled, splash_kernel(heads, length, 4096), [q, k, k]))
    one = of((4096, width), jnp.bfloat16)

    def small(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        scores = jnp.einsum("qd,kd->qk", q, k, preferred_element_type=jnp.float32)
        return jnp.einsum("qk,kd->qd", jax.nn.softmax(scores, axis=-1).astype(q.dtype), v)

    program = compiled(small, [one, one, one])
    text = program.as_text()
    found["small"] = {
        "scores_in_vmem": bool(re.search(r"f32\[4096,4096\]\{[^}]*S\(1\)\}", text)),
        "temp_bytes": program.memory_analysis().temp_size_in_bytes,
        "fusions": len(re.findall(r"ROOT|fusion\(", text.split("ENTRY")[-1])),
    }
    return found


def precision() -> dict[str, int]:
    square = of((2048, 2048), jnp.float32)
    found = {}
    for name in ("default", "high", "highest"):
        text = compiled(lambda a, b, name=name: jnp.dot(a, b, precision=name), [square, square]).as_text()
        found[name] = max(int(x) for x in re.findall(r'estimated_cycles":"(\d+)"', text))
    return found


def donation() -> dict[str, Any]:
    weights = of((8192, 8192), jnp.float32)
    found = {}
    for name, donated in (("kept", ()), ("donated", (0,))):
        memory = compiled(lambda p, g: p - 0.1 * g, [weights, weights], donate_argnums=donated).memory_analysis()
        found[name] = {
            "arguments": memory.argument_size_in_bytes // MIB,
            "output": memory.output_size_in_bytes // MIB,
            "alias": memory.alias_size_in_bytes // MIB,
        }
    return found


def gathers() -> dict[str, int]:
    mesh = Mesh(np.array(topology("v6e:2x4").devices), ("fsdp",))

    def shape(rows: int, columns: int) -> Any:
        return of((rows, columns), jnp.bfloat16, sharding=NamedSharding(mesh, PartitionSpec("fsdp", None)))

    def loss(x: jax.Array, wi: jax.Array, wo: jax.Array) -> jax.Array:
        return jnp.mean((jnp.dot(x, wi) @ wo).astype(jnp.float32) ** 2)

    lowered = jax.jit(loss).trace(shape(65536, 2048), shape(2048, 8192), shape(8192, 2048)).lower(lowering_platforms=("tpu",))
    return dict(Counter(re.findall(r"= \S+ ((?:all|reduce|collective)[a-z-]*)\(", lowered.compile().as_text())))


def layers(*modes: str) -> dict[str, Any]:
    depth, tokens, width, hidden = 16, 8192, 2048, 8192

    def layer(x: jax.Array, weights: tuple[jax.Array, jax.Array]) -> jax.Array:
        inner = jax.nn.gelu(jnp.dot(x, weights[0], preferred_element_type=jnp.float32)).astype(x.dtype)
        return x + jnp.dot(inner, weights[1], preferred_element_type=jnp.float32).astype(x.dtype)

    def loss(mode: str, weights: tuple[jax.Array, jax.Array], x: jax.Array) -> jax.Array:
        body = layer
        if "remat" in mode:
            body = jax.checkpoint(layer)
        if "dots" in mode:
            body = jax.checkpoint(layer, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)
        if "scan" in mode:
            x, _ = jax.lax.scan(lambda x, w: (body(x, w), None), x, weights)
        else:
            for i in range(depth):
                x = body(x, (weights[0][i], weights[1][i]))
        return jnp.mean(x.astype(jnp.float32) ** 2)

    weights = (of((depth, width, hidden), jnp.bfloat16), of((depth, hidden, width), jnp.bfloat16))
    found = {}
    for mode in modes:
        program = compiled(jax.grad(partial(loss, mode)), [weights, of((tokens, width), jnp.bfloat16)])
        found[mode] = {
            "temp_mib": round(program.memory_analysis().temp_size_in_bytes / MIB),
            "flops": program.cost_analysis()["flops"],
            "text_kb": len(program.as_text()) // 1000,
        }
    return found


if __name__ == "__main__":
    topic, *rest = sys.argv[1:]
    print(json.dumps(globals()[topic](*rest)))
