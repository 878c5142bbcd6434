"""Causal grouped-query attention as its definition reads: the measure of every candidate, and never changed by one.

It repeats each key and value head for its group of query heads and materialises all scores, masked ones too.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def reference(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """softmax(q k^T / sqrt(d) + causal mask) v, in the dtype of q; scores are at least float32, float64 for the oracle."""
    group = q.shape[1] // k.shape[1]
    k = jnp.repeat(k, group, axis=1)  # [batch, q_heads, seq, head_dim]
    v = jnp.repeat(v, group, axis=1)
    wide = jnp.promote_types(q.dtype, jnp.float32)
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=wide) * q.shape[-1] ** -0.5  # [batch, q_heads, seq, seq]
    seq = q.shape[2]
    causal = jnp.tril(jnp.ones((seq, seq), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1)
    return jnp.einsum("bhqk,bhkd->bhqd", weights.astype(v.dtype), v, preferred_element_type=wide).astype(q.dtype)
