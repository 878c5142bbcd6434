"""Profiles: the public fixture's figures exactly, a Flax train step profiled here, and files that are none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import xml.dom.minidom
from collections import defaultdict
from pathlib import Path

import pytest

from kgagent.errors import EvidenceError, UnknownThing, UsageError
from kgagent.evidence.flame import flame, flame_svg, speedscope
from kgagent.evidence.gap import by_class, by_function, by_line, gap
from kgagent.evidence.hlo import Module, parse_hlo
from kgagent.evidence.hlo_proto import modules_beside, modules_in_trace
from kgagent.evidence.profile import Profile
from kgagent.evidence.record_run import record_profile
from kgagent.evidence.views import exposed_transfers, kernels, neighbourhood, overview
from kgagent.evidence.weigh import Weighed, weigh_module, weigh_profile
from kgagent.evidence.xplane import read_profile, trace_files
from kgagent.evidence.xprof_tables import xprof_tables
from kgagent.graph import Graph
from tests.evidence import programs

MODEL = """
import sys, jax, jax.numpy as jnp
from flax import nnx

class Block(nnx.Module):
    def __init__(self, width, rngs):
        self.up, self.down = nnx.Linear(width, 4 * width, rngs=rngs), nnx.Linear(4 * width, width, rngs=rngs)
        self.norm = nnx.RMSNorm(width, rngs=rngs)

    def __call__(self, x):
        return x + self.down(nnx.gelu(self.up(self.norm(x))))

def unrolled(blocks, x):
    for block in blocks:
        x = nnx.merge(graph, block)(x)
    return x

def scanned(blocks, x):
    body = jax.checkpoint(lambda x, block: (nnx.merge(graph, block)(x), None))
    return jax.lax.scan(body, x, blocks)[0]

blocks = [nnx.split(Block(256, nnx.Rngs(seed)))[1] for seed in range(4)]
graph = nnx.split(Block(256, nnx.Rngs(0)))[0]
x = jnp.ones((512, 256))
for name, forward, state in (("unrolled", unrolled, blocks), ("scanned", scanned, jax.tree.map(lambda *leaves: jnp.stack(leaves), *blocks))):
    def loss(state, x, forward=forward):
        return jnp.mean(forward(state, x) ** 2)

    def train_step(state, x):
        value, gradient = jax.value_and_grad(loss)(state, x)
        return value, jax.tree.map(lambda p, g: p - 1e-3 * g, state, gradient)

    step = jax.jit(train_step).lower(state, x).compile()
    open(f"{sys.argv[1]}/{name}.hlo", "w").write(step.as_text())
    jax.block_until_ready(step(state, x))
    with jax.profiler.trace(f"{sys.argv[1]}/{name}"):
        for _ in range(2):
            jax.block_until_ready(step(state, x))
"""


@pytest.fixture(scope="session")
def train_profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Profile, Weighed]]:
    """A Flax NNX train step, unrolled and with scan and remat, profiled on this CPU and joined to its executable's HLO."""
    if not programs.HAVE_JAX:
        pytest.skip("jax is not installed")
    pytest.importorskip("flax")
    folder = tmp_path_factory.mktemp("profiles")
    script = folder / "train_model.py"
    script.write_text(MODEL)
    done = subprocess.run([sys.executable, str(script), str(folder)], capture_output=True, text=True, check=False, env={**os.environ, "JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, done.stderr[-3000:]
    out = {}
    for name in ("unrolled", "scanned"):
        profile = read_profile(folder / name)
        out[name] = (folder / name, profile, weigh_profile(profile, {"jit_train_step": [parse_hlo((folder / f"{name}.hlo").read_text())]}))
    return out


def fixture_profile(shared: Path) -> tuple[Profile, Weighed]:
    folder = shared / "evidence/v6e_matmul/logdir"
    profile = read_profile(folder)
    modules: dict[str, list[Module]] = defaultdict(list)
    for name, text in modules_in_trace(trace_files(folder)[0].read_bytes()):
        modules[name].append(parse_hlo(text))
    return profile, weigh_profile(profile, modules)


def test_the_fixtures_figures_exactly(shared: Path) -> None:
    profile, weighed = fixture_profile(shared)
    (device,) = profile.devices
    assert (device.device_type, device.peak_tflops, round(device.peak_hbm_gb_s or 0, 2)) == ("TPU v6 Lite", 946.7, 1637.99)
    (op,) = device.ops
    assert (op.name, op.module, op.occurrences) == ("matmul_optimized.1", "jit_matmul_optimized", 3)
    assert op.total_ps == op.self_ps == 227_262_500 and weighed.total == 227.2625
    assert len(device.executions) == 3 and device.busy_ps == 227_277_500
    mxu = next(counter for counter in device.counters if counter.name == "MXU")
    assert (mxu.measure, mxu.samples) == ("% util", 294) and mxu.largest == pytest.approx(79.1345, abs=1e-3)
    spills = next(counter for counter in device.counters if counter.name == "Vector Spills")
    assert (spills.measure, spills.largest) == ("spills", 0)
    assert (profile.jax, profile.hosts, device.absent) == ("0.10.0", ("host0",), ())


def test_the_fixtures_kernel_waits_for_its_input(shared: Path) -> None:
    profile, weighed = fixture_profile(shared)
    (view,) = kernels(profile, weighed)
    assert (view.kernel, view.invocations, view.total_us, view.share) == ("matmul_optimized", 3, 227.2625, 1.0)
    stages = {stage.name: stage for stage in view.stages}
    assert stages["ep_run_kernel"].occurrences == 3 * 16 and stages["ep_wait_in"].total_ps == 173_375_000
    assert view.wait_frac is not None and 0.76 < view.wait_frac < 0.78
    (over,) = overview(profile)
    assert over.executions == 3 and over.median_step_us == pytest.approx(75.79) and over.idle_us is not None and over.idle_us > 0
    assert weighed.ops[0].origins[0].frames[0].place.endswith("pallas_matmul.py:48")


def test_hlo_inside_and_beside_a_trace_is_the_same(shared: Path) -> None:
    (trace,) = trace_files(shared / "evidence/v6e_matmul/logdir")
    inside, beside = dict(modules_in_trace(trace.read_bytes())), dict(modules_beside(trace.parent))
    assert inside == beside and parse_hlo(inside["jit_matmul_optimized"]).entry.root.target == "tpu_custom_call"


def test_xprof_agrees_and_leaves_nothing_beside_the_trace(shared: Path) -> None:
    pytest.importorskip("xprof")
    folder = shared / "evidence/v6e_matmul/logdir"
    before = sorted(path.name for path in trace_files(folder)[0].parent.iterdir())
    (table,) = xprof_tables(folder, "hlo_stats")
    assert table.column("hlo_op_name") == ("matmul_optimized.1",) and table.column("total_self_time") == (227.2625,)
    roofline = xprof_tables(folder, "roofline_model")
    assert dict(roofline[0].properties)["device_type"] == "TPU v6 Lite" and dict(roofline[0].properties)["peak_flop_rate"] == "946700"
    assert sorted(path.name for path in trace_files(folder)[0].parent.iterdir()) == before
    with pytest.raises(UsageError):
        xprof_tables(folder, "no_such_tool")


@pytest.mark.parametrize("name", ["unrolled", "scanned"])
def test_a_train_steps_time_reaches_the_models_lines(train_profiles: dict[str, tuple[Path, Profile, Weighed]], name: str) -> None:
    _, profile, weighed = train_profiles[name]
    assert weighed.total == pytest.approx(sum(op.self_us for op in profile.ops()))
    assert weighed.attributed / weighed.total >= 0.97
    assert weighed.share_within("train_model.py") >= 0.95
    assert overview(profile)[0].executions == 2
    tree = flame_svg(weighed, "step")
    assert "Block.__call__" in tree and ("scanned" if name == "scanned" else "unrolled") in tree


@pytest.mark.parametrize("name", ["unrolled", "scanned"])
def test_widths_lines_and_samples_sum_to_the_total(train_profiles: dict[str, tuple[Path, Profile, Weighed]], name: str) -> None:
    _, _, weighed = train_profiles[name]
    assert sum(weight for _, weight in weighed.lines()) == pytest.approx(weighed.total)
    root = flame(weighed)
    assert root.weight == weighed.total == pytest.approx(sum(child.weight for child in root.children.values()))
    data = json.loads(speedscope(weighed, "step"))
    (samples,) = data["profiles"]
    assert sum(samples["weights"]) == pytest.approx(weighed.total) == samples["endValue"]
    assert all(0 <= frame < len(data["shared"]["frames"]) for stack in samples["samples"] for frame in stack)
    svg = flame_svg(weighed, "a < b & c")
    xml.dom.minidom.parseString(svg)
    assert weighed.remainder_text in svg


@pytest.mark.parametrize("key", [by_class, by_line, by_function])
def test_a_gaps_rows_sum_to_the_difference(train_profiles: dict[str, tuple[Path, Profile, Weighed]], key) -> None:
    a, b = train_profiles["unrolled"][2], train_profiles["scanned"][2]
    found = gap(a, b, key)
    assert sum(row.difference for row in found.rows) == pytest.approx(b.total - a.total)
    assert [abs(row.difference) for row in found.rows] == sorted((abs(row.difference) for row in found.rows), reverse=True)
    assert all(row.difference == 0 for row in gap(a, a, key).rows)


def test_the_gap_between_preflights_names_the_score_matrix(einsum: Module, splash: Module) -> None:
    found = gap(weigh_module(einsum), weigh_module(splash), by_line)
    assert found.unit == "bytes" and found.a_total > 2 * found.b_total
    rows = [row for row in found.rows if row.difference < 0 and "programs.py" in row.key]
    assert rows and sum(row.difference for row in rows) < -(8 * 2048 * 2048 * 4)
    with pytest.raises(UsageError):
        gap(weigh_module(einsum, "bytes"), weigh_module(splash, "flops"))


def test_static_costs_say_what_they_do_not_see(splash: Module) -> None:
    for unit in ("cycles", "flops"):
        assert "nothing inside 1 custom call" in weigh_module(splash, unit).blind
    with pytest.raises(UsageError, match="euros"):
        weigh_module(splash, "euros")


def test_a_profile_without_its_hlo_is_unattributed_never_dropped(train_profiles: dict[str, tuple[Path, Profile, Weighed]]) -> None:
    _, profile, joined = train_profiles["unrolled"]
    alone = weigh_profile(profile, {})
    assert alone.total == pytest.approx(joined.total) and alone.attributed == 0
    assert alone.remainder_text == "0.0% of us has a line; 100.0% unattributed"
    assert {child.name for child in flame(alone).children.values()} == {"unattributed"}


def test_a_measured_profile_in_the_graph(graph: Graph, shared: Path) -> None:
    profile, weighed = fixture_profile(shared)
    written = record_profile(graph, "profile:fixture", profile, weighed, lane=None, label="measured")
    assert (written.ops, written.ops_left_out, written.attributed_frac) == (1, 0, 1.0)
    node = graph.need("op:fixture/matmul_optimized.1")
    assert (node.data["self_us"], node.data["occurrences"], node.data["kernel_name"]) == (227.2625, 3, "matmul_optimized")
    device = graph.need("profile:fixture").data["devices"][0]
    assert (device["device_type"], device["peak_tflops"], device["executions"]) == ("TPU v6 Lite", 946.7, 3)
    assert [e.dst.rpartition("#")[2] for e in graph.edges(src=node.id, type="from_line")] == ["L48", "L67", "L69", "L80"]


def test_ops_beyond_the_limit_are_summed(graph: Graph, train_profiles: dict[str, tuple[Path, Profile, Weighed]]) -> None:
    _, profile, weighed = train_profiles["scanned"]
    written = record_profile(graph, "profile:cpu", profile, weighed, lane=None, label="cpu", limit=5)
    data = graph.need("profile:cpu").data
    assert written.ops == 5 == len(graph.edges(src="profile:cpu", type="has_op"))
    kept = sum(graph.need(e.dst).data["self_us"] for e in graph.edges(src="profile:cpu", type="has_op"))
    assert kept + sum(row["us"] for row in data["rest"].values()) == pytest.approx(data["total"])
    assert "counters" in data["devices"][0]["absent"] and data["devices"][0]["peak_tflops"] is None


def test_files_that_are_no_profile(shared: Path, tmp_path: Path) -> None:
    (trace,) = trace_files(shared / "evidence/v6e_matmul/logdir")
    whole = trace.read_bytes()
    cases = {"": "empty", "junk" * 50: "not a profile", whole[:500_000]: "cut off", whole[:5000]: "cut off", b"\x0a\x02ab": "not a profile|no XLA"}
    for content, says in cases.items():
        file = tmp_path / "t.xplane.pb"
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        with pytest.raises(EvidenceError, match=says) as caught:
            read_profile(file)
        assert caught.value.hint
    with pytest.raises(EvidenceError, match="no such profile"):
        read_profile(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(EvidenceError, match=r"no \*.xplane.pb"):
        read_profile(tmp_path / "empty")


def test_several_hosts_and_the_newest_run(shared: Path, tmp_path: Path) -> None:
    (trace,) = trace_files(shared / "evidence/v6e_matmul/logdir")
    for run, hosts in (("2026_01_01", ["old"]), ("2026_02_01", ["host0", "host1"])):
        for host in hosts:
            target = tmp_path / "plugins/profile" / run / f"{host}.xplane.pb"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(trace, target)
    profile = read_profile(tmp_path)
    assert profile.hosts == ("host0", "host1") and len(profile.devices) == 2
    weighed = weigh_profile(profile, {})
    assert weighed.total == 2 * 227.2625


def test_an_instructions_neighbourhood(einsum: Module) -> None:
    around = neighbourhood(einsum, "copy-done")
    assert ("operand", "copy-start") in {(n.direction, n.name) for n in around}
    assert any(n.direction == "user" for n in around)
    with pytest.raises(UnknownThing):
        neighbourhood(einsum, "nobody.1")


def test_transfers_a_device_waits_for(train_profiles: dict[str, tuple[Path, Profile, Weighed]]) -> None:
    _, profile, _ = train_profiles["unrolled"]
    name = profile.ops()[0].name
    text = f"HloModule m\n\nENTRY %e (x: f32[4]) -> f32[4] {{\n  %x = f32[4]{{0}} parameter(0)\n  ROOT %{name} = f32[4]{{0}} all-reduce(%x), to_apply=%e\n}}\n"
    (found,) = exposed_transfers(profile, {"jit_train_step": parse_hlo(text)})
    assert (found.name, found.kind) == (name, "all-reduce") and found.exposed_us == pytest.approx(profile.ops()[0].self_us)
