"""The compiler without a TPU: what compiles, what is refused with which numbers, and what is wrong with the request."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kgagent import compiler
from kgagent.compiler import aot as aot_module
from kgagent.compiler import aot_compile, compiler_status, known_topologies, target_of
from kgagent.compiler import status as status_module
from kgagent.errors import CompileError, Unavailable, UsageError
from kgagent.evidence.hlo import parse_hlo
from kgagent.graph import plain
from tests.evidence import programs
from tests.evidence.conftest import compiled_once

needs_libtpu = pytest.mark.skipif(not programs.HAVE_LIBTPU, reason="libtpu is not installed")


def in_python(code: str, **env: str) -> str:
    """Run code in a fresh interpreter; returns what it printed."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, env={**os.environ, **env}, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_libtpu
@pytest.mark.parametrize(("topology", "kind"), [("v6e:2x2", "TPU v6 lite"), ("v5e:2x2", "TPU v5 lite")])
def test_splash_compiles_with_its_kernel_memory_and_blind_spot(topology: str, kind: str) -> None:
    result = compiled_once(programs.splash_export(), topology)
    assert (result.status, result.error, result.device_kind, result.devices) == ("ok", None, kind, 1)
    assert result.kernels == ("splash_mha_fwd_no_residuals",)
    assert "splash_mha_fwd_no_residuals" in result.cost_note
    assert result.memory is not None
    assert result.memory.argument_bytes == 3 * 8 * 2048 * 128 * 2 and result.memory.output_bytes == 8 * 2048 * 128 * 2
    module = parse_hlo(result.hlo_text)
    assert module.name == "jit_attention" and module.unread == 0
    assert json.loads(json.dumps(plain(result)))["libtpu"] == compiler_status().libtpu


@needs_libtpu
def test_einsum_pays_for_the_score_matrix_in_temporaries() -> None:
    result = compiled_once(programs.einsum_export(), "v6e:2x2")
    assert result.kernels == () and result.cost_note == ""
    assert result.memory is not None and result.memory.temp_bytes >= 8 * 2048 * 2048 * 4
    assert result.flops is not None and result.flops > 2 * 2 * 8 * 2048 * 2048 * 128


@needs_libtpu
def test_blocks_too_large_for_vmem_come_back_with_asked_and_limit() -> None:
    result = aot_compile(programs.splash_export(2048, 2048), "v5e:2x2")
    assert result.status == "blocked" and result.hlo_text == "" and result.memory is None
    error = result.error
    assert error is not None and (error.kind, error.space, error.stage) == ("vmem_oom", "vmem", "compile")
    assert error.limit_bytes == 16 * 2**20 and error.asked_bytes is not None and error.asked_bytes > error.limit_bytes
    assert error.allocation.startswith("splash_mha_fwd_no_residuals")
    assert error.line.rpartition(":")[0].endswith("splash_attention_kernel.py")
    assert any("programs.py" in frame for frame in error.frames)
    assert "limit 16.00 MiB" in error.what and error.hint


@needs_libtpu
def test_more_than_hbm_comes_back_with_asked_and_limit() -> None:
    import jax
    import jax.numpy as jnp

    def scores(x):
        return jax.nn.softmax(jnp.sin(x @ x.T) @ jnp.cos(x @ x.T), -1).sum(0)

    big = jax.export.export(jax.jit(scores), platforms=["tpu"])(jax.ShapeDtypeStruct((131072, 128), jnp.float32)).serialize()
    error = aot_compile(bytes(big), "v6e:2x2").error
    assert error is not None and (error.kind, error.space) == ("hbm_oom", "hbm")
    assert error.asked_bytes is not None and error.limit_bytes is not None and error.asked_bytes > error.limit_bytes > 30 * 2**30


@needs_libtpu
@pytest.mark.parametrize(
    ("flags", "kind", "names"),
    [({"xla_tpu_bogus": "1"}, "unknown_flag", "xla_tpu_bogus"), ({"xla_tpu_scoped_vmem_limit_kib": "much"}, "bad_flag", "xla_tpu_scoped_vmem_limit_kib")],
)
def test_flags_the_compiler_refuses(flags: dict[str, str], kind: str, names: str) -> None:
    result = aot_compile(programs.splash_export(), "v6e:2x2", flags=flags)
    assert result.error is not None and (result.error.kind, result.error.allocation) == (kind, names)
    assert result.compile_s < 1


@needs_libtpu
@pytest.mark.parametrize("topology", ["v6e", "nope:2x2", "v6e:9x9x9", ""])
def test_unknown_topologies_name_the_known(topology: str) -> None:
    with pytest.raises(UsageError) as caught:
        aot_compile(programs.einsum_export(), topology)
    assert "v6e:2x4" in caught.value.hint and caught.value.exit_code == 2


@needs_libtpu
@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: b"junk" * 99, lambda data: data[: len(data) // 2], lambda data: data[:900] + bytes(200) + data[1100:]]
)
def test_bytes_that_are_no_program(damage) -> None:
    with pytest.raises(CompileError, match="not a readable"):
        aot_compile(damage(programs.einsum_export()), "v6e:2x2")


@needs_libtpu
def test_a_program_for_another_platform() -> None:
    import jax
    import jax.numpy as jnp

    exported = jax.export.export(jax.jit(jnp.sin), platforms=["cpu"])(jax.ShapeDtypeStruct((8,), jnp.float32)).serialize()
    with pytest.raises(CompileError, match="exported for cpu") as caught:
        aot_compile(bytes(exported), "v6e:2x2")
    assert "tpu" in caught.value.hint


@needs_libtpu
def test_a_compile_that_takes_too_long_is_blocked() -> None:
    result = aot_compile(programs.splash_export(), "v6e:2x2", wall_s=0.3)
    assert result.status == "blocked" and result.error is not None and result.error.kind == "timeout"
    assert result.wall_s < 5


@needs_libtpu
def test_results_are_kept_by_program_topology_and_flags(tmp_path: Path) -> None:
    program, said = programs.splash_export(), []
    first = aot_compile(program, "v6e:2x2", cache=tmp_path, progress=said.append)
    assert not first.cached and said[0] == "compiling for v6e:2x2" and said[-1].startswith("ok")
    again = aot_compile(program, "v6e:2x2", cache=tmp_path)
    assert again.cached
    assert {**plain(first), "cached": True} == plain(again)
    refused = aot_compile(program, "v6e:2x2", flags={"xla_tpu_bogus": "1"}, cache=tmp_path)
    assert refused.status == "blocked" and not refused.cached
    assert aot_compile(program, "v6e:2x2", flags={"xla_tpu_bogus": "1"}, cache=tmp_path).error == refused.error
    for entry in tmp_path.rglob("*.z"):
        entry.write_bytes(entry.read_bytes()[:20])
    assert not aot_compile(program, "v6e:2x2", cache=tmp_path).cached
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".tmp")]


@needs_libtpu
def test_a_sharded_program_brings_its_mesh_and_shows_collectives() -> None:
    code = """
        import sys, jax, jax.numpy as jnp
        from jax.sharding import NamedSharding, PartitionSpec as P
        mesh = jax.make_mesh((2, 4), ("data", "model"))
        def f(x, w): return jax.nn.relu(x @ w).sum()
        shape = lambda s, *p: jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=NamedSharding(mesh, P(*p)))
        sys.stdout.write(jax.export.export(jax.jit(f), platforms=["tpu"])(shape((256, 512), "data", None), shape((512, 1024), None, "model")).serialize().hex())
    """
    exported = bytes.fromhex(in_python(code, JAX_PLATFORMS="cpu", XLA_FLAGS="--xla_force_host_platform_device_count=8"))
    result = aot_compile(exported, "v6e:2x4")
    assert (result.status, result.devices) == ("ok", 8)
    assert any(i.opcode.startswith("all-reduce") for _, i in parse_hlo(result.hlo_text).instructions())
    with pytest.raises(UsageError, match="for 8 devices, the topology has 4"):
        aot_compile(exported, "v6e:2x2")


@needs_libtpu
def test_a_kernel_that_asks_for_its_chip_is_traced_for_the_target() -> None:
    code = """
        import sys, jax, jax.numpy as jnp
        from jax.experimental.pallas import tpu as pltpu
        from kgagent.compiler.target import target_context
        def f(x): return x * float(pltpu.get_tpu_info().vmem_capacity_bytes // 2**20)
        with target_context(sys.argv[1]):
            print(jax.export.export(jax.jit(f), platforms=["tpu"])(jax.ShapeDtypeStruct((8, 128), jnp.float32)).mlir_module())
    """
    for topology, vmem in (("v6e:2x2", "1.28"), ("v5p:2x2x1", "6.4")):
        printed = in_python(code.replace("sys.argv[1]", repr(topology)), JAX_PLATFORMS="cpu")
        assert f"{vmem}0000" in printed


@needs_libtpu
def test_known_topologies_are_known_and_reported_as_the_data_file_says() -> None:
    code = """
        from kgagent.compiler import known_topologies, target_of
        from kgagent.compiler.target import describe
        for name in known_topologies():
            device = describe(name).devices[0]
            target = target_of(name)
            assert (device.device_kind, device.num_cores) == (target.device_kind, target.cores), (name, device.device_kind, device.num_cores)
        print("ok")
    """
    assert in_python(code, JAX_PLATFORMS="cpu", ALLOW_MULTIPLE_LIBTPU_LOAD="1", TPU_SKIP_MDS_QUERY="1").strip().endswith("ok")


def test_a_missing_libtpu_is_said_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = status_module._version
    monkeypatch.setattr(status_module, "_version", lambda name: None if name == "libtpu" else real(name))
    assert not compiler_status().available and "libtpu" in compiler_status().hint
    with pytest.raises(Unavailable) as caught:
        aot_compile(b"", "v6e:2x2")
    assert caught.value.exit_code == 2 and 'pip install "kgagent[tpu]"' in caught.value.hint


@pytest.mark.parametrize(
    ("program", "raises", "kind"),
    [
        ("import os; os.abort()", Unavailable, ""),
        ("print(1/0)", Unavailable, ""),
        (
            "import sys,os; open(sys.argv[1]+'/stage','w').write('compile'); sys.stderr.write('F0000 Check failed: x'); sys.stderr.flush(); os.abort()",
            None,
            "aborted",
        ),
        ("import sys,os; open(sys.argv[1]+'/stage','w').write('read'); os.abort()", CompileError, ""),
        ("import sys; open(sys.argv[1]+'/result.json','w').write('{\"status\": \"o')", Unavailable, ""),
    ],
)
def test_a_worker_that_dies(monkeypatch: pytest.MonkeyPatch, program: str, raises: type[Exception] | None, kind: str) -> None:
    """A compiler that aborts the process takes nothing with it; before the program was read it is the machine's fault."""
    real = aot_module.run_limited
    monkeypatch.setattr(aot_module, "need_compiler", lambda: compiler.CompilerStatus(True, "1", "1", "1", ""))
    monkeypatch.setattr(aot_module, "run_limited", lambda argv, **limits: real([sys.executable, "-c", program, argv[-1]], **limits))
    if raises is not None:
        with pytest.raises(raises):
            aot_compile(b"program", "v6e:2x2")
        return
    error = aot_compile(b"program", "v6e:2x2").error
    assert error is not None and error.kind == kind and "Check failed: x" in error.message


def test_importing_the_compiler_imports_no_jax() -> None:
    assert in_python("import sys, kgagent.compiler; print({'jax', 'jaxlib', 'numpy'} & set(sys.modules))").strip() == "set()"


def test_targets() -> None:
    assert target_of("v6e:2x4").device_kind == "TPU v6 lite"
    assert target_of("v5p:8x8x8").cores == 2
    assert all(":" in name for name in known_topologies())
    with pytest.raises(UsageError, match="v7:2x2"):
        target_of("v7:2x2")
