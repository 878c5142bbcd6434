"""Inputs of the attention lane, and the least work its answer takes; hashed, never changed by a candidate."""

from __future__ import annotations

from collections.abc import Mapping

import jax


def inputs(seed: int, op_point: Mapping[str, object]) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Standard normal q, k, v for an operating point; drawn in float32 so that a seed means the same in every dtype."""
    batch, q_heads, kv_heads, seq, head_dim = (int(str(op_point[name])) for name in ("batch", "q_heads", "kv_heads", "seq", "head_dim"))
    shapes = ((batch, q_heads, seq, head_dim), (batch, kv_heads, seq, head_dim), (batch, kv_heads, seq, head_dim))
    keys = jax.random.split(jax.random.key(seed), 3)
    q, k, v = (jax.random.normal(key, shape, "float32").astype(str(op_point["dtype"])) for key, shape in zip(keys, shapes, strict=True))
    return q, k, v


def min_flops(op_point: Mapping[str, object]) -> float:
    """Multiply-adds of the unmasked half of both products, two flops each: no exact algorithm does less."""
    batch, heads, seq, head_dim = (int(str(op_point[name])) for name in ("batch", "q_heads", "seq", "head_dim"))
    return 2.0 * 2.0 * batch * heads * head_dim * seq * (seq + 1) / 2.0
