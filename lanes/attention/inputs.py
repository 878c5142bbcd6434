"""Inputs of the attention lane, and the least work its answer takes; hashed, never changed by a candidate."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np


def inputs(seed: int, op_point: Mapping[str, object]) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Standard normal q, k, v for an operating point; drawn in float32 so that a seed means the same in every dtype."""
    batch, q_heads, kv_heads, seq, head_dim = (int(str(op_point[name])) for name in ("batch", "q_heads", "kv_heads", "seq", "head_dim"))
    shapes = ((batch, q_heads, seq, head_dim), (batch, kv_heads, seq, head_dim), (batch, kv_heads, seq, head_dim))
    chance = np.random.default_rng(seed)  # numpy's: nothing to compile, and the same numbers under every jax
    q, k, v = (jnp.asarray(chance.standard_normal(shape, np.float32)).astype(str(op_point["dtype"])) for shape in shapes)
    return q, k, v


def min_flops(op_point: Mapping[str, object]) -> float:
    """Multiply-adds of the unmasked half of both products, two flops each: no exact algorithm does less."""
    batch, heads, seq, head_dim = (int(str(op_point[name])) for name in ("batch", "q_heads", "seq", "head_dim"))
    return 2.0 * 2.0 * batch * heads * head_dim * seq * (seq + 1) / 2.0
