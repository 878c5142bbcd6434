"""The memory peak of a scheduled module beside the compiler's own figure, and the buffers it is made of."""

from __future__ import annotations

import pytest

from kgagent.compiler import aot_compile
from kgagent.evidence.hlo import Module, parse_hlo
from kgagent.evidence.liveness import memory_peak
from tests.evidence import programs
from tests.evidence.conftest import compiled_once

pytestmark = pytest.mark.skipif(not programs.HAVE_LIBTPU, reason="libtpu is not installed")

CHAIN = """HloModule chain, is_scheduled=true

%update (p: f32[4,256], q: f32[1,256], i: s32[]) -> f32[4,256] {
  %p = f32[4,256]{1,0} parameter(0)
  %q = f32[1,256]{1,0} parameter(1)
  %i = s32[] parameter(2)
  %z = s32[] constant(0)
  ROOT %u = f32[4,256]{1,0} dynamic-update-slice(%p, %q, %i, %z)
}

ENTRY %main (x: f32[4,256], i: s32[]) -> f32[4,256] {
  %x = f32[4,256]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %a = f32[4,256]{1,0} negate(%x)
  %b = f32[4,256]{1,0} exponential(%a)
  %c = f32[1,256]{1,0:S(1)} slice(%b), slice={[0:1], [0:256]}
  %t = (f32[4,256]{1,0}, f32[4,256]{1,0}) tuple(%a, %b)
  %g = f32[4,256]{1,0} get-tuple-element(%t), index=1
  %d = f32[4,256]{1,0} fusion(%g, %c, %i), kind=kLoop, calls=%update
  %e = f32[4,256]{1,0} sine(%d)
  ROOT %f = f32[4,256]{1,0} cosine(%e)
}
"""


def test_aliases_tuples_and_updates_in_place() -> None:
    """`a` dies at `b` though a tuple names it; `d` overwrites `b`; VMEM costs no HBM: two temporaries beside argument and result."""
    peak = memory_peak(parse_hlo(CHAIN))
    array = 4 * 256 * 4
    assert (peak.argument_bytes, peak.peak_bytes) == (array + 4, 4 * array + 4)
    assert {buffer.name for buffer in peak.buffers} == {"x", "i", "a", "b", "f"} and peak.at == "b"


PAIR = """HloModule pair, is_scheduled=true

ENTRY %main (x: f32[4,256]) -> f32[4,256] {{
  %x = f32[4,256]{{1,0}} parameter(0)
  %p = {shape} custom-call(%x), custom_call_target="made_up"
  %q = {first}
  %l = f32[4,256]{{1,0}} get-tuple-element(%q), index=0
  %r = f32[4,256]{{1,0}} get-tuple-element(%p), index=1
  %a = f32[4,256]{{1,0}} negate(%l)
  %b = f32[4,256]{{1,0}} add(%a, %r)
  ROOT %f = f32[4,256]{{1,0}} cosine(%b)
}}
"""
ARRAY = "f32[4,256]{1,0}"


@pytest.mark.parametrize(
    ("shape", "first", "temporaries"),
    [
        (f"({ARRAY}, {ARRAY})", f"({ARRAY}, {ARRAY}) opt-barrier(%p)", ["a", "p", "p"]),
        (f"(({ARRAY}, {ARRAY}), {ARRAY})", f"({ARRAY}, {ARRAY}) get-tuple-element(%p), index=0", ["a", "b", "p", "p", "p"]),
    ],
    ids=["a pair", "a nested tuple"],
)
def test_each_array_of_a_tuple_dies_at_its_own_last_use(shape: str, first: str, temporaries: list[str]) -> None:
    """`p`'s first array dies at `a`, so that `a` and `b` are never both beside two of them; a nested tuple lives as long as any array of it."""
    peak = memory_peak(parse_hlo(PAIR.format(shape=shape, first=first)))
    assert sorted(buffer.name for buffer in peak.buffers if buffer.kind == "temporary") == temporaries
    assert peak.peak_bytes == (len(temporaries) + 2) * 4 * 256 * 4


def test_attention_peaks_at_its_score_matrix(einsum: Module) -> None:
    compiled = compiled_once(programs.einsum_export(), "v6e:2x2")
    assert compiled.memory is not None and compiled.memory.peak_bytes is not None
    peak = memory_peak(einsum)
    assert peak.peak_bytes == pytest.approx(compiled.memory.peak_bytes, rel=0.01)
    assert peak.argument_bytes == compiled.memory.argument_bytes
    largest = peak.buffers[0]
    assert (largest.shape, largest.kind) == ("f32[8,2048,2048]", "temporary") and "programs.py" in largest.line


@pytest.mark.parametrize(
    ("scanned", "donate"), [(True, False), pytest.param(False, False, marks=pytest.mark.slow), pytest.param(False, True, marks=pytest.mark.slow)]
)
def test_a_train_step_peaks_where_the_compiler_says(scanned: bool, donate: bool) -> None:
    import jax
    import jax.numpy as jnp

    def loss(weights, x):
        if scanned:
            x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)
        else:
            for n in range(3):
                x = jnp.tanh(x @ weights[n])
        return (x**2).sum()

    shapes = jax.ShapeDtypeStruct((3, 512, 512), jnp.float32), jax.ShapeDtypeStruct((32768, 512), jnp.float32)

    def step(weights, x):
        return weights - 0.1 * jax.grad(loss)(weights, x)

    jitted = jax.jit(step, donate_argnums=0) if donate else jax.jit(step)
    exported = bytes(jax.export.export(jitted, platforms=["tpu"])(*shapes).serialize())
    compiled = aot_compile(exported, "v6e:2x2")
    assert compiled.memory is not None and compiled.memory.peak_bytes is not None
    assert (compiled.memory.alias_bytes > 0) is donate
    peak = memory_peak(parse_hlo(compiled.hlo_text))
    assert any(buffer.kind == "result" for buffer in peak.buffers) is not donate
    assert peak.peak_bytes == pytest.approx(compiled.memory.peak_bytes, rel=0.01)
    assert sum(buffer.buffer_bytes for buffer in peak.buffers) == peak.peak_bytes
    temporaries = [buffer for buffer in peak.buffers if buffer.kind == "temporary" and buffer.buffer_bytes > 2**20]
    assert temporaries and all("test_liveness.py" in " ".join(buffer.frames) for buffer in temporaries)
