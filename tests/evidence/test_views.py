"""xprof's roofline, memory and input pipeline as records, the host's side of a trace, and the neighbourhood of a kept instruction."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kgagent.errors import UnknownThing
from kgagent.evidence.add import add_profile
from kgagent.evidence.hlo import Module, parse_hlo
from kgagent.evidence.host import host_of, idle_gaps
from kgagent.evidence.kept_hlo import around, diff_of, modules_of
from kgagent.evidence.profile import Device, Execution
from kgagent.evidence.views import counters, overview
from kgagent.evidence.xplane import read_profile
from kgagent.evidence.xprof_views import input_pipeline, memory, roofline
from kgagent.graph import Graph, NewNode
from tests.evidence import programs

STEPS = """
import sys, jax, jax.numpy as jnp, numpy as np
square, other = jax.jit(lambda x: (x @ x).sum()), jax.jit(lambda x: jnp.tanh(x).sum())
square(jnp.ones((256, 256))).block_until_ready()
with jax.profiler.trace(sys.argv[1]):
    for number in range(3):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            with jax.profiler.TraceAnnotation("read the batch"):
                batch = jax.device_put(np.random.rand(256, 256).astype(np.float32))
            square(batch).block_until_ready()
            if number == 1:
                other(batch).block_until_ready()
"""


@pytest.fixture(scope="session")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A loop with marked steps, a batch read in each, and one compilation in the middle."""
    if not programs.HAVE_JAX:
        pytest.skip("jax is not installed")
    folder = tmp_path_factory.mktemp("stepped")
    done = subprocess.run([sys.executable, "-c", STEPS, str(folder)], capture_output=True, text=True, check=False, env={**os.environ, "JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def test_the_fixtures_roofline_says_what_it_cannot_see(shared: Path) -> None:
    pytest.importorskip("xprof")
    found = roofline(shared / "evidence/v6e_matmul/logdir")
    assert (found.device_type, found.peak_gflops_per_s, found.peak_hbm_gib_per_s, found.ridge_flops_per_byte) == ("TPU v6 Lite", 946700.0, 1525.5, 577.963)
    (op,) = found.ops
    assert (op.name, op.occurrences, op.self_us) == ("matmul_optimized.1", 3, 227.2625)
    assert (op.gflops_per_s, op.hbm_gib_per_s, op.bound_by, op.roofline_frac) == (None, None, None, None), "unknown, never 0"
    assert found.blind_frac == 1.0 and "custom call" in found.blind[0] and found.absent == ()


def test_the_fixtures_memory_is_measured_and_by_line(graph: Graph, shared: Path) -> None:
    pytest.importorskip("xprof")
    folder = shared / "evidence/v6e_matmul/logdir"
    run = add_profile(graph, folder, run="matmul").id
    found = memory(modules_of(graph, run), folder)
    (allocator,) = found.allocators
    assert (allocator.peak_bytes, allocator.capacity_bytes, allocator.stack_bytes) == (51333120, 33550235648, 65536)
    assert next((a.shape.partition("{")[0], a.allocation_bytes, a.count) for a in allocator.allocations) == ("f32[2048,2048]", 2**24, 2)
    (module,) = found.modules
    assert (module.module, module.peak.argument_bytes, module.peak.peak_bytes) == ("jit_matmul_optimized", 2**24, 2**25)
    assert module.peak.buffers[0].line.endswith("pallas_matmul.py:48") and found.absent == ()


def test_marked_steps_compilation_and_what_the_host_did(stepped: Path) -> None:
    profile = read_profile(stepped)
    host = profile.host
    assert host is not None and [step.number for step in host.steps] == [0, 1, 2]
    assert len(host.compilations_us) == 1
    (device,) = overview(profile)
    assert device.compile_us == host.compilations_us[0] and device.compilations == 1
    assert device.median_step_us == sorted(step.duration_us for step in host.steps)[1]
    done = {activity.name: activity for activity in host.activities}
    assert done["read the batch"].count == 3 and 0 < done["read the batch"].idle_us <= done["read the batch"].total_us
    compiling = done["backend_compile_and_load"]
    assert compiling.idle_us == pytest.approx(compiling.total_us), "nothing runs while the second function compiles"


def test_a_cpu_has_steps_but_no_roofline_and_no_known_input(stepped: Path) -> None:
    pytest.importorskip("xprof")
    found = roofline(stepped)
    assert found.ops == () and found.peak_gflops_per_s is None and "CPU" in found.absent[0]
    read = input_pipeline(stepped, read_profile(stepped))
    assert read.steps == 3 and read.step_ms is not None and read.idle_us is not None and read.idle_us > 0
    assert (read.input_frac, read.conclusion, read.to_device_us) == (None, None, None), "xprof's 0% there means that it knows no input operation"
    assert any("input operations" in what for what in read.absent)
    assert memory({}, stepped).absent == ("allocator events", "HLO of a module that ran")


def test_without_marks_no_share_of_a_step_is_claimed(shared: Path) -> None:
    pytest.importorskip("xprof")
    folder = shared / "evidence/v6e_matmul/logdir"
    profile = read_profile(folder)
    found = input_pipeline(folder, profile)
    assert (found.steps, found.step_ms, found.input_frac) == (None, None, None) and "step markers" in found.absent[0]
    assert found.idle_us == pytest.approx(379.73875, abs=1e-3)
    assert overview(profile)[0].compile_us is None, "a trace without a compilation says nothing of compiling"
    assert next(c.counter.samples for c in counters(profile) if c.counter.name == "MXU") == 294


class Event:
    """A host event as jaxlib gives it."""

    def __init__(self, name: str, start_ns: float, duration_ns: float, **stats: object) -> None:
        self.name, self.start_ns, self.duration_ns, self.stats = name, start_ns, duration_ns, stats.items()


class Line:
    def __init__(self, *events: Event) -> None:
        self.events = events


def device(*runs: tuple[float, float]) -> Device:
    executions = tuple(Execution("jit_f", start, round((end - start) * 1000)) for start, end in runs)
    return Device("d", "TPU", None, None, executions, (), (), (), ())


@pytest.mark.parametrize(
    "runs, gaps",
    [
        ([], []),
        ([(0, 10)], []),
        ([(0, 10), (30, 40), (35, 50)], [(10, 30)]),
        ([(30, 40), (0, 10), (5, 20), (60, 61)], [(20, 30), (40, 60)]),
    ],
)
def test_gaps_are_where_no_device_ran(runs: list[tuple[float, float]], gaps: list[tuple[float, float]]) -> None:
    assert idle_gaps([device(*runs[:2]), device(*runs[2:])]) == gaps


def test_host_time_in_gaps_is_the_overlap() -> None:
    gaps = [(10_000.0, 30_000.0), (40_000.0, 60_000.0)]
    lines = [
        Line(Event("load", 0, 15_000), Event("load", 25_000, 20_000), Event("$f.py:1 f", 0, 10**6), Event("infeed", 70_000, 5_000)),
        Line(Event("TransferToDevice#size=8#", 45_000, 5_000), Event("backend_compile", 0, 7_000), Event("train", 0, 50_000, step_num=4)),
    ]
    host = host_of(lines, gaps)
    done = {a.name: (a.count, a.total_us, a.idle_us) for a in host.activities}
    assert done == {"load": (2, 35.0, 15.0), "infeed": (1, 5.0, 0.0), "TransferToDevice": (1, 5.0, 5.0), "backend_compile": (1, 7.0, 0.0)}
    assert (host.events, host.compilations_us, host.to_device_us, host.idle_us) == (7, (7.0,), 5.0, 40.0)
    assert [(step.number, step.duration_us) for step in host.steps] == [(4, 50.0)]
    assert host_of([], gaps).to_device_us is None


def keep_compile(graph: Graph, id_: str, module_text: str) -> None:
    """A compile as a preflight leaves it: its HLO kept, its node in the graph."""
    with graph.transaction():
        graph.put_nodes([NewNode(id_, "profile", id_, "test", data={"hlo_sha": graph.objects.put(module_text.encode())})])


def test_an_instruction_of_a_kept_run_with_its_lines_and_neighbours(graph: Graph, shared: Path) -> None:
    run = add_profile(graph, shared / "evidence/v6e_matmul/logdir", run="matmul").id
    found = around(graph, run, "matmul_optimized.1")
    assert found.module == "jit_matmul_optimized" and found.frames[0].endswith("pallas_matmul.py:48")
    assert [(n.direction, n.name) for n in found.neighbours] == [("operand", "x.1"), ("operand", "y.1")]
    assert 'custom_call_target="tpu_custom_call"' in found.text and len(found.text) < 2000, "the kernel's body is not printed"
    for name, module, says in (("nobody.1", None, "no instruction"), ("x.1", "jit_other", "no module")):
        with pytest.raises(UnknownThing, match=says):
            around(graph, run, name, module)


def test_hlo_of_a_compile_and_of_a_run_that_kept_none(graph: Graph, train_steps: dict[tuple[bool, bool], Module]) -> None:
    text = programs.train_step_hlo(True, True)
    keep_compile(graph, "compile:a", text)
    keep_compile(graph, "compile:b", programs.train_step_hlo(False, True))
    with graph.transaction():
        graph.put_nodes([NewNode("profile:bare", "profile", "bare", "test", data={})])
    assert list(modules_of(graph, "compile:a")) == [parse_hlo(text).name]
    change = diff_of(graph, "compile:a", "compile:b")
    assert change is not None and change.went and change.came
    assert modules_of(graph, "profile:bare") == {} and diff_of(graph, "compile:a", "profile:bare") is None
    with pytest.raises(UnknownThing, match="no HLO was kept"):
        around(graph, "profile:bare", "x")
