"""Causal grouped-query attention with the choices that matter on a CPU and on a TPU; this file may change.

q is [batch, q_heads, seq, head_dim]; k and v are [batch, kv_heads, seq, head_dim].
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

Carry = tuple[jax.Array, jax.Array, jax.Array]  # row maximum, sum of exponentials, weighted values, all of them so far

MASKED = -1e30  # finite: a row of -inf would give NaN in an online softmax


def candidate(q: jax.Array, k: jax.Array, v: jax.Array, *, impl: str, block_q: int = 128, block_kv: int = 128, skip_masked: bool = True) -> jax.Array:
    """Dispatch on the implementation; the knobs are declared in lane.toml."""
    if impl == "einsum":
        group = q.shape[1] // k.shape[1]
        return grouped(q, jnp.repeat(k, group, axis=1), jnp.repeat(v, group, axis=1))
    if impl == "grouped":
        return grouped(q, k, v)
    if impl == "chunked":
        return chunked(q, k, v, block_q, block_kv, skip_masked)
    if impl == "dpa":
        seq_major = (x.swapaxes(1, 2) for x in (q, k, v))  # [batch, seq, heads, head_dim]
        return jax.nn.dot_product_attention(*seq_major, is_causal=True).swapaxes(1, 2)
    if impl == "splash":
        return splash(q, k, v, block_q, block_kv)
    raise ValueError(f"unknown impl {impl!r}")


def split_heads(q: jax.Array, kv_heads: int) -> jax.Array:
    batch, q_heads, seq, head_dim = q.shape
    return q.reshape(batch, kv_heads, q_heads // kv_heads, seq, head_dim)


def wide(dtype: jnp.dtype) -> jnp.dtype:
    return jnp.promote_types(dtype, jnp.float32)


def grouped(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Each key head meets its group of query heads without being copied; scores are materialised."""
    queries = split_heads(q, k.shape[1])
    scores = jnp.einsum("bkgqd,bktd->bkgqt", queries, k, preferred_element_type=wide(q.dtype)) * q.shape[-1] ** -0.5
    seq = q.shape[2]
    causal = jnp.tril(jnp.ones((seq, seq), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1)  # [batch, kv_heads, group, seq, seq]
    out = jnp.einsum("bkgqt,bktd->bkgqd", weights.astype(v.dtype), v, preferred_element_type=wide(q.dtype))
    return out.astype(q.dtype).reshape(q.shape)


def chunked(q: jax.Array, k: jax.Array, v: jax.Array, block_q: int, block_kv: int, skip_masked: bool) -> jax.Array:
    """Online softmax over tiles of queries x keys: no tensor of seq x seq, and tiles above the diagonal can be left out.

    Keys are padded to whole tiles at the end: under a causal mask no query sees a padded key.
    """
    seq = q.shape[2]
    tiles = -(-seq // block_kv)
    pad = ((0, 0), (0, 0), (0, tiles * block_kv - seq), (0, 0))
    k, v = jnp.pad(k, pad), jnp.pad(v, pad)
    queries = split_heads(q, k.shape[1]) * q.shape[-1] ** -0.5
    rows = []
    for start in range(0, seq, block_q):
        stop = min(start + block_q, seq)
        whole = (start + 1) // block_kv  # tiles that every query of this row block sees in full
        needed = -(-stop // block_kv)  # tiles that some query of it sees
        step = partial(attend_tile, queries[:, :, :, start:stop], k, v, start, block_kv)
        tile = queries[:, :, :, start:stop]
        wide_dtype = wide(q.dtype)
        carry = (jnp.full(tile.shape[:-1], MASKED, wide_dtype), jnp.zeros(tile.shape[:-1], wide_dtype), jnp.zeros(tile.shape, wide_dtype))
        carry = jax.lax.fori_loop(0, whole, partial(step, masked=False), carry)
        carry = jax.lax.fori_loop(whole, needed if skip_masked else tiles, partial(step, masked=True), carry)
        _, total, acc = carry
        rows.append((acc / total[..., None]).astype(q.dtype))
    return jnp.concatenate(rows, axis=3).reshape(q.shape)


def attend_tile(tile: jax.Array, k: jax.Array, v: jax.Array, start: int, block_kv: int, index: jax.Array, carry: Carry, *, masked: bool) -> Carry:
    """One step of the online softmax: rescale what was summed so far to the new row maximum, then add this tile."""
    best, total, acc = carry
    keys = jax.lax.dynamic_slice_in_dim(k, index * block_kv, block_kv, 2)
    values = jax.lax.dynamic_slice_in_dim(v, index * block_kv, block_kv, 2)
    scores = jnp.einsum("bkgqd,bktd->bkgqt", tile, keys, preferred_element_type=acc.dtype)
    if masked:
        positions = start + jnp.arange(tile.shape[3])
        scores = jnp.where(positions[:, None] >= index * block_kv + jnp.arange(block_kv)[None, :], scores, MASKED)
    new_best = jnp.maximum(best, scores.max(-1))
    shrink = jnp.exp(best - new_best)
    weights = jnp.exp(scores - new_best[..., None])
    product = jnp.einsum("bkgqt,bktd->bkgqd", weights.astype(v.dtype), values, preferred_element_type=acc.dtype)
    return new_best, total * shrink + weights.sum(-1), acc * shrink[..., None] + product


def splash(q: jax.Array, k: jax.Array, v: jax.Array, block_q: int, block_kv: int) -> jax.Array:
    """The Pallas kernel for TPU; where the platform is the CPU the same kernel runs in interpret mode.

    Sequences that no block divides are padded at the end: under a causal mask no real query sees a padded key.
    """
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    seq = q.shape[2]
    block = max(block_q, block_kv)
    padded = -(-seq // block) * block
    pad = ((0, 0), (0, 0), (0, padded - seq), (0, 0))
    q, k, v = (jnp.pad(x, pad) for x in (q * q.shape[-1] ** -0.5, k, v))
    mask = masks.MultiHeadMask([masks.CausalMask((padded, padded))] * q.shape[1])
    sizes = kernel.BlockSizes(block_q=block_q, block_kv=block_kv, block_kv_compute=block_kv)

    def run(interpret: bool):
        attend = kernel.make_splash_mha(mask, head_shards=1, q_seq_shards=1, block_sizes=sizes, interpret=interpret)
        return lambda *qkv: jax.vmap(attend)(*qkv)

    out = jax.lax.platform_dependent(q, k, v, cpu=run(True), tpu=run(False))
    return out[:, :, :seq]
