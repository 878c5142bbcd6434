"""Kernels' grids evaluated exactly, and their predicted times beside public measurements."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from kgagent.compiler import aot_compile
from kgagent.compiler.kernel_cost import KernelCost, kernel_costs, model_for
from kgagent.compiler.module_cost import module_cost
from kgagent.errors import ConfigError
from kgagent.evidence.flame import flame
from kgagent.evidence.grid import GridRun, literal, operand_values, run_grid
from kgagent.evidence.hlo import parse_hlo
from kgagent.evidence.kernels import kernel_calls
from tests.evidence import programs

pytestmark = pytest.mark.skipif(not programs.HAVE_LIBTPU, reason="libtpu is not installed")
ROWS, COLUMNS, INNER = 1024, 2048, 512


@cache
def matmul_export(block_m: int, block_k: int, block_n: int) -> bytes:
    """A tiled product: k innermost, zeroed at its first step, written at its last."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu

    def body(x, y, out, total):
        @pl.when(pl.program_id(2) == 0)
        def _():
            total[...] = jnp.zeros_like(total)

        total[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            out[...] = total[...].astype(out.dtype)

    product = pl.pallas_call(
        body,
        grid=(ROWS // block_m, COLUMNS // block_n, INNER // block_k),
        in_specs=[pl.BlockSpec((block_m, block_k), lambda i, j, k: (i, k)), pl.BlockSpec((block_k, block_n), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j, k: (i, j)),
        out_shape=jax.ShapeDtypeStruct((ROWS, COLUMNS), jnp.bfloat16),
        scratch_shapes=[pltpu.VMEM((block_m, block_n), jnp.float32)],
    )
    shapes = jax.ShapeDtypeStruct((ROWS, INNER), jnp.bfloat16), jax.ShapeDtypeStruct((INNER, COLUMNS), jnp.bfloat16)
    return bytes(jax.export.export(jax.jit(product), platforms=["tpu"])(*shapes).serialize())


@cache
def compiled(exported: bytes, topology: str, folder: Path):
    result = aot_compile(exported, topology, flags={"xla_tpu_scoped_vmem_limit_kib": "65536"}, dump=folder)
    assert result.status == "ok", result.error
    return result, parse_hlo(result.hlo_text)


@pytest.fixture(scope="module")
def splash_dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One dump of the same splash for all tests that only read it."""
    folder = tmp_path_factory.mktemp("kernel") / "splash"
    compiled(programs.splash_export(), "v6e:1x1", folder)
    return folder


def cost(exported: bytes, topology: str, folder: Path) -> KernelCost:
    result, module = compiled(exported, topology, folder)
    (found,) = kernel_costs(module, folder, model_for(topology), dict(result.constants))
    return found


def grid_run(exported: bytes, folder: Path) -> GridRun:
    result, module = compiled(exported, "v6e:1x1", folder)
    (call,) = kernel_calls(module)
    found = run_grid(call.instruction, operand_values(module.computations[call.computation], call.instruction, dict(result.constants)))
    assert found is not None
    return found


def test_a_products_conditions_and_fetches(tmp_path: Path) -> None:
    found = grid_run(matmul_export(256, 128, 512), tmp_path)
    m, n, k = ROWS // 256, COLUMNS // 512, INNER // 128
    assert (found.grid, found.steps, found.unknown) == ((m, n, k), m * n * k, 0)
    assert [condition.share for condition in found.conditions] == [1 / k, 1 / k]
    assert [window.moves for window in found.windows] == [m * n * k, m * n * k, m * n]
    assert [window.block_bytes for window in found.windows] == [256 * 128 * 2, 128 * 512 * 2, 256 * 512 * 2]


def test_a_block_whose_index_stays_is_not_fetched_again(tmp_path: Path) -> None:
    found = grid_run(matmul_export(256, INNER, 512), tmp_path)
    m, n = ROWS // 256, COLUMNS // 512
    assert [window.moves for window in found.windows] == [m, m * n, m * n]
    assert [condition.share for condition in found.conditions] in ([1.0, 1.0], [])


def test_a_causal_masks_share_is_read_from_the_mask(splash_dump: Path) -> None:
    """4 x 4 blocks of a causal mask: 10 hold something; k and v are not fetched again for those that hold nothing."""
    found = grid_run(programs.splash_export(), splash_dump)
    assert found.unknown == 0
    assert [condition.share for condition in found.conditions] == [1 / 4, 10 / 16, 1 / 4]
    assert all(condition.places[0].rpartition(":")[0].endswith("splash_attention_kernel.py") for condition in found.conditions)
    queries, keys = found.windows[0], found.windows[1]
    assert queries.moves == 8 * 4 and keys.moves is not None and 8 * 4 <= keys.moves <= 8 * 10


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  %c = s8[1,2,2]{2,1,0:T(4,128)(4,1)} constant({ { { 1, 0 }, { -2, 1 } } }), metadata={}", [[[1, 0], [-2, 1]]]),
        ("  %c = s32[] constant(7)", 7),
        ("  %c = pred[2]{0} constant({1, 0})", [1, 0]),
        ("  %c = s8[4]{0} constant({...})", None),
        ("  %c = f32[2]{0} constant({1.5, 2})", None),
        ("  %c = s8[3]{0} constant({1, 2})", None),
    ],
)
def test_literals(line: str, expected: object) -> None:
    found = literal(line)
    assert (None if found is None else found.tolist()) == expected


def test_what_is_not_known_counts_at_its_most_and_is_said(splash_dump: Path) -> None:
    result, module = compiled(programs.splash_export(), "v6e:1x1", splash_dump)
    (known,) = kernel_costs(module, splash_dump, model_for("v6e:1x1"), dict(result.constants))
    (blind,) = kernel_costs(module, splash_dump, model_for("v6e:1x1"), {})
    assert known.unknown == () and len(blind.unknown) == 1 and "fires" in blind.unknown[0], "its keys and values lie in VMEM: fetching them is free"
    assert known.dma_bytes == blind.dma_bytes
    assert blind.predicted_us > 1.2 * known.predicted_us


@pytest.mark.slow
def test_lines_sum_to_the_prediction_and_move_with_the_blocks(tmp_path: Path) -> None:
    small, large = cost(programs.splash_export(256), "v6e:1x1", tmp_path / "a"), cost(programs.splash_export(1024), "v6e:1x1", tmp_path / "b")
    for found in (small, large):
        assert sum(us for _, us in found.line_us) == pytest.approx(found.predicted_us)
        assert found.low_us < found.predicted_us < found.high_us
        located = [place for place, _ in found.line_us if place]
        assert located[0].rpartition(":")[0].endswith("splash_attention_kernel.py")
        assert dict(found.line_us).get("", 0.0) < 0.5 * found.predicted_us
    assert small.steps == 16 * large.steps and small.predicted_us > large.predicted_us
    assert dict(small.line_us) != dict(large.line_us)


@pytest.mark.slow
def test_predictions_beside_public_measurements(shared: Path, tmp_path: Path) -> None:
    """Times measured by others on a v6e; queries laid out as the kernel wants them, so that the kernel is all there is."""
    import jax
    import jax.numpy as jnp
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    rows = [json.loads(line) for line in (shared / "cost_model/measured.jsonl").read_text().splitlines()]
    chosen = [
        row for row in rows if row["op"] == "jax.splash_mha_fwd" and row["shape"] == "b2h32s1024d128_bf16" and row["config"]["q_layout"] == "HEAD_DIM_MINOR"
    ]
    assert len(chosen) == 3
    for n, row in enumerate(chosen):
        sizes = kernels.BlockSizes(block_q=row["config"]["block_q"], block_kv=row["config"]["block_kv"], block_kv_compute=row["config"]["block_kv"])
        mask = masks.MultiHeadMask([masks.CausalMask((1024, 1024))] * 32)
        kernel = kernels.make_splash_mha(mask, block_sizes=sizes, head_shards=1, q_seq_shards=1)
        shape = jax.ShapeDtypeStruct((2, 32, 1024, 128), jnp.bfloat16)
        exported = bytes(jax.export.export(jax.jit(jax.vmap(kernel)), platforms=["tpu"])(shape, shape, shape).serialize())
        found = cost(exported, "v6e:1x1", tmp_path / str(n))
        assert found.predicted_us == pytest.approx(row["median_ms"] * 1e3, rel=0.08), row


def test_a_chip_without_a_clock_is_said() -> None:
    with pytest.raises(ConfigError, match="no clock for v4"):
        model_for("v4:2x2x1")


def test_a_module_is_its_kernels_and_its_fusions_with_their_coverage(splash_dump: Path) -> None:
    result, module = compiled(programs.splash_export(), "v6e:1x1", splash_dump)
    found = module_cost(module, splash_dump, model_for("v6e:1x1"), dict(result.constants))
    (kernel,) = found.kernels
    assert found.predicted_us == pytest.approx(found.fusions_us + kernel.predicted_us) and found.fusions_us > 0
    assert found.weighed.total == pytest.approx(found.predicted_us) and found.weighed.predicted
    assert found.coverage > 0.9 and found.weighed.remainder_text.startswith("100.0% of us has a line")
    assert sum(child.weight for child in flame(found.weighed).children.values()) == pytest.approx(found.predicted_us)


@pytest.mark.slow
def test_splash_is_predicted_faster_than_einsum(tmp_path: Path) -> None:
    costs = []
    for n, exported in enumerate((programs.einsum_export(), programs.splash_export(1024))):
        result, module = compiled(exported, "v6e:1x1", tmp_path / str(n))
        costs.append(module_cost(module, tmp_path / str(n), model_for("v6e:1x1"), dict(result.constants)))
    einsum, splash = costs
    assert splash.high_us < einsum.low_us
    assert einsum.kernels == () and einsum.coverage > 0.9
