"""Real programs for the evidence and compiler tests, each made once a session: exports for the TPU, HLO text of several dialects."""

from __future__ import annotations

import os
from functools import cache
from importlib import metadata, util

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # with libtpu installed, jax would look for a TPU and wait

HAVE_JAX = util.find_spec("jax") is not None
HAVE_LIBTPU = util.find_spec("libtpu") is not None
# the first libtpu of jax 0.12: of the older ones, 0.0.42 was read
NEW_LIBTPU = HAVE_LIBTPU and tuple(int(part) for part in metadata.version("libtpu").split(".")[:3]) >= (0, 0, 50)
LAYERS, BATCH, TOKENS, WIDTH, HIDDEN, HEADS, VOCABULARY = 4, 2, 128, 64, 192, 4, 256


@cache
def einsum_export(q_len: int = 2048, heads: int = 8) -> bytes:
    import jax
    import jax.numpy as jnp

    def attention(q, k, v):
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.088
        scores = jnp.where(jnp.tril(jnp.ones((q_len, q_len), bool)), scores, -1e30)
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1).astype(v.dtype), v)

    shape = jax.ShapeDtypeStruct((1, heads, q_len, 128), jnp.bfloat16)
    return bytes(jax.export.export(jax.jit(attention), platforms=["tpu"])(shape, shape, shape).serialize())


@cache
def splash_export(block: int = 512, q_len: int = 2048, heads: int = 8) -> bytes:
    import jax
    import jax.numpy as jnp
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    mask = masks.MultiHeadMask([masks.CausalMask((q_len, q_len))] * heads)
    sizes = kernels.BlockSizes(block_q=block, block_kv=block, block_kv_compute=block)
    kernel = kernels.make_splash_mha(mask, block_sizes=sizes, head_shards=1, q_seq_shards=1)

    def attention(q, k, v):
        return jax.vmap(kernel)(q * 0.088, k, v)

    shape = jax.ShapeDtypeStruct((1, heads, q_len, 128), jnp.bfloat16)
    return bytes(jax.export.export(jax.jit(attention), platforms=["tpu"])(shape, shape, shape).serialize())


def splash_keeps_accumulators_in_outputs() -> bool:
    """Whether the installed kernel's three accumulators are outputs that nobody reads, as before they became scratch."""
    import inspect

    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels

    return "scratch_shapes" not in inspect.getsource(kernels._splash_attention_forward)


@cache
def train_step_hlo(scanned: bool, optimized: bool) -> str:
    """A small decoder's train step: unrolled, or scanned with rematerialisation."""
    import jax
    import jax.numpy as jnp

    def layer(p, x):
        q, k, v = ((x @ p[name]).reshape(BATCH, TOKENS, HEADS, WIDTH // HEADS) for name in "qkv")
        scores = jnp.einsum("bthd,bshd->bhts", q, k) / 4
        x = x + jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores, -1), v).reshape(x.shape) @ p["o"]
        return x + (jax.nn.silu(x @ p["g"]) * (x @ p["u"])) @ p["d"]

    def loss(layers, table, tokens):
        x = table[tokens]
        if scanned:
            x, _ = jax.lax.scan(lambda x, p: (jax.checkpoint(layer)(p, x), None), x, layers)
        else:
            for p in layers:
                x = layer(p, x)
        return jnp.mean(jax.nn.logsumexp(x @ table.T, -1))

    def step(layers, table, tokens):
        value, gradient = jax.value_and_grad(loss, argnums=(0, 1))(layers, table, tokens)
        return value, jax.tree.map(lambda p, g: p - 0.001 * g, (layers, table), gradient)

    def parameters(*lead):
        shapes = {**dict.fromkeys("qkvo", (WIDTH, WIDTH)), "g": (WIDTH, HIDDEN), "u": (WIDTH, HIDDEN), "d": (HIDDEN, WIDTH)}
        return {name: jax.ShapeDtypeStruct((*lead, *shape), jnp.float32) for name, shape in shapes.items()}

    layers = parameters(LAYERS) if scanned else [parameters() for _ in range(LAYERS)]
    table = jax.ShapeDtypeStruct((VOCABULARY, WIDTH), jnp.float32)
    lowered = jax.jit(step).lower(layers, table, jax.ShapeDtypeStruct((BATCH, TOKENS), jnp.int32))
    return lowered.compile().as_text() if optimized else lowered.as_text("hlo", debug_info=True)


def train_step_flops() -> int:
    """Products of the unrolled step, by hand: backward costs twice the forward."""
    tokens = BATCH * TOKENS
    projections = 4 * 2 * tokens * WIDTH * WIDTH + 3 * 2 * tokens * WIDTH * HIDDEN
    attention = 2 * 2 * BATCH * TOKENS * TOKENS * WIDTH
    return 3 * (LAYERS * (projections + attention) + 2 * tokens * WIDTH * VOCABULARY)
