"""A broken lane.toml gives one error with file, line and what to write; a whole one gives records."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from kgagent.errors import ConfigError, UnknownThing, UsageError
from kgagent.lanes import Lane, candidate_code_sha, canonical_knobs, list_lanes, load_lane, matching_levers, shipped_lanes
from kgagent.lanes.records import Scalar
from kgagent.workspace import Workspace, create_workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return create_workspace(tmp_path / "w")


@pytest.fixture
def lane(workspace: Workspace) -> Lane:
    return load_lane(workspace, "attention")


def own_lane(workspace: Workspace) -> Path:
    shutil.copytree(shipped_lanes() / "attention", workspace.lanes / "attention", ignore=shutil.ignore_patterns("__pycache__"))
    return workspace.lanes / "attention"


def test_shipped_attention(workspace: Workspace, lane: Lane) -> None:
    assert "attention" in list_lanes(workspace)
    assert (lane.kind, lane.unit, lane.direction) == ("kernel", "ms", "min")
    assert [point.role for point in lane.points("cpu")] == ["timed", "parity", "parity"]
    assert [point.mapping()["dtype"] for point in lane.points("tpu", "timed")] == ["bfloat16"]
    assert {gate.name for gate in lane.gates if gate.mandatory} >= {"parity", "mechanism", "signature", "finite"}
    for lever in lane.levers:
        assert lever.concepts and all(re.fullmatch(r"[a-z0-9-]+", slug) for slug in lever.concepts)
        assert 0 < lever.prior < 1 and lever.expected_gain > 1


def test_the_workspace_own_lane_comes_first_and_hashes_what_it_must(workspace: Workspace, lane: Lane) -> None:
    folder = own_lane(workspace)
    mine = load_lane(workspace, "attention")
    assert mine.folder == folder and mine.digest == lane.digest
    (folder / "candidate.py").write_text("# another\n")
    edited = load_lane(workspace, "attention")
    assert edited.digest == lane.digest and candidate_code_sha(edited) != candidate_code_sha(lane)
    (folder / "reference.py").write_text("# another\n")
    assert load_lane(workspace, "attention").digest != lane.digest


def test_unknown_lane_names_the_nearest(workspace: Workspace) -> None:
    with pytest.raises(UnknownThing) as caught:
        load_lane(workspace, "atention")
    assert "attention" in caught.value.hint
    with pytest.raises(UnknownThing):
        load_lane(workspace, "../attention")


@pytest.mark.parametrize(
    ("old", "new", "line_of", "told"),
    [
        ('metric = "step_ms"', "metric = ", "metric = ", "doesn't parse"),
        ('metric = "step_ms"', "", "[lane]", "lacks `metric`"),
        ('kind = "kernel"', 'kind = "kernl"', 'kind = "kernl"', "'kernl'"),
        ('name = "attention"', 'name = "other"', 'name = "other"', "folder named 'attention'"),
        ("refutation_reach = 1", 'refutation_reach = "1"', "refutation_reach", "whole number"),
        ('role = "timed"', 'role = "tmed"', 'role = "tmed"', "'tmed'"),
        ('role = "timed"', 'role = "parity"', "[[op_points]]", "0 timed"),
        ("trace_s = 60", "trace_s = -1", "trace_s = -1", "positive"),
        ("trace_s = 60", "trace_z = 60", "trace_z = 60", "no budget"),
        ("memory_mb = 6000", "memory_mb = 6000.5", "memory_mb", "positive whole"),
        ("bound = 256.0", 'bound = "256"', 'bound = "256"', "a finite number"),
        ('default = "einsum"', 'default = "naive"', 'default = "naive"', "isn't among its choices"),
        ('choices = ["einsum"', 'choice = ["einsum"', 'choice = ["einsum"', "no key 'choice'"),
        ('when = { impl = ["chunked"] }', 'when = { imp = ["chunked"] }', 'when = { imp = ["chunked"] }', "no knob"),
        ('value = "splash"', 'value = "flash"', 'value = "flash"', "isn't a choice"),
        ("prior = 0.05", "prior = 5", "prior = 5", "probability"),
        ("[gates.parity]\nmandatory = true", "[gates.parity]", "[gates.parity]", "lacks `mandatory`"),
        ("cpu.expect = ['\\bwhile\\(']\ncpu.forbid", "cpu.expect = ['while(']\ncpu.forbid", 'value = "splash"', "regular expression"),
        ("[gates.immutable]\nmandatory = true", "[gates]\nimmutable = true", "immutable = true", "should be a section"),
        ("[guards.compile_s]\nbound = 20.0", "[guards]\ncompile_s = 20.0", "compile_s = 20.0", "should be a section"),
        ("cpu.expect = ['\\bwhile\\(']\ncpu.forbid", "gpu = 3\ncpu.forbid", "gpu = 3", "no platform 'gpu'"),
        ("cpu.expect = ['\\bwhile\\(']\ncpu.forbid = ['\\[[\\d,]*{seq},{seq}\\]']", "cpu = 3", "cpu = 3", "should be a section"),
        ('metric = "step_ms"', 'metrik = "x"\nmetric = "step_ms"', "metrik", "no key 'metrik'"),
        ("[gates.finite]\nmandatory = true", "[gatez]\nfinite = true", "[gatez]", "no section is named 'gatez'"),
        ("[lane]", "[[lane]]", "[[lane]]", "should be a section"),
        ("choices = [128, 256, 512]", "choices = []", "choices = []", "its own way"),
        ("choices = [128, 256, 512]", "choices = [128, [256]]", "choices = [128, [256]]", "its own way"),
        ("choices = [128, 256, 512]", 'choices = [128, "128"]', 'choices = [128, "128"]', "its own way"),
        ("choices = [128, 256, 512]", "choices = [128, nan]", "choices = [128, nan]", "its own way"),
        ("[knobs.impl]", "[knobs.class]", "[knobs.class]", "'class'"),
        ('when = { impl = ["chunked"] }', 'when = { impl = "chunked" }', 'when = { impl = "chunked" }', "a list"),
        ('when = { impl = ["chunked"] }', 'when = { impl = ["chunkd"] }', 'when = { impl = ["chunkd"] }', "no choice"),
        ("run_s = 90", "run_s = inf", "run_s = inf", "positive"),
        ("prior = 0.05", "prior = nan", "prior = nan", "a finite number"),
        ("expected_gain = 1.02", "expected_gain = -1.0", "expected_gain = -1.0", "above 0"),
        ('value = "splash"', 'value = "dpa"', 'value = "dpa"\nstatement = "The Pallas', "two levers"),
        ('mutable = ["candidate.py"]', 'mutable = ["../../candidate.py"]', "mutable", "no file of the lane's own"),
        ('mutable = ["candidate.py"]', 'mutable = ["/etc/hostname"]', "mutable", "no file of the lane's own"),
        ('mutable = ["candidate.py"]', 'mutable = ["reference.py"]', "immutable", "twice"),
        ("seq = 1024", "seq = [1024]", "seq = [1024]", "a text, a finite number"),
        ("times_floor = 4.0", "times_floor = inf", "times_floor = inf", "a text, a finite number"),
        ('doc = "Causal', 'doc = 3 # "Causal', "doc = 3", "should be"),
        ('concepts = ["tiling", "block-sizes", "vmem"]', "concepts = [1]", "concepts = [1]", "list of texts"),
    ],
)
def test_broken_lanes(workspace: Workspace, old: str, new: str, line_of: str, told: str) -> None:
    path = own_lane(workspace) / "lane.toml"
    text = path.read_text()
    assert old in text
    text = text.replace(old, new, 1)
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_lane(workspace, "attention")
    assert told in caught.value.what and "\n" not in caught.value.what
    assert caught.value.hint
    line = int(caught.value.where.rpartition(":")[2])
    expected = text[: text.index(line_of)].count("\n") + 1
    assert abs(line - expected) <= (2 if "splash" in line_of else 0), f"{caught.value.where}, expected {expected}"


def test_an_own_folder_without_lane_toml_is_told_not_passed_over(workspace: Workspace) -> None:
    folder = own_lane(workspace)
    (folder / "lane.toml").unlink()
    with pytest.raises(ConfigError) as caught:
        load_lane(workspace, "attention")
    assert "kgagent init" in caught.value.hint


def test_missing_and_binary_files(workspace: Workspace) -> None:
    folder = own_lane(workspace)
    (folder / "inputs.py").unlink()
    with pytest.raises(ConfigError, match=r"inputs\.py"):
        load_lane(workspace, "attention")
    (folder / "lane.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_lane(workspace, "attention")


@pytest.mark.parametrize(
    ("asked", "canonical"),
    [
        ({}, {"impl": "einsum"}),
        ({"block_q": 256}, {"impl": "einsum"}),
        ({"impl": "splash"}, {"impl": "splash", "block_q": 128, "block_kv": 128}),
        ({"impl": "splash", "skip_masked": False, "block_q": "256"}, {"impl": "splash", "block_q": 256, "block_kv": 128}),
        ({"impl": "chunked", "skip_masked": "false"}, {"impl": "chunked", "block_q": 128, "block_kv": 128, "skip_masked": False}),
    ],
)
def test_canonical_knobs(lane: Lane, asked: dict[str, Scalar], canonical: dict[str, Scalar]) -> None:
    assert canonical_knobs(lane, asked) == canonical
    assert canonical_knobs(lane, canonical) == canonical
    assert list(canonical_knobs(lane, asked)) == sorted(canonical)


@pytest.mark.parametrize(
    ("asked", "told"), [({"impl": "fast"}, "einsum, grouped"), ({"blok": 1}, "block_q"), ({"impl": "chunked", "skip_masked": 1}, "true, false")]
)
def test_impossible_knobs(lane: Lane, asked: dict[str, Scalar], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        canonical_knobs(lane, asked)
    assert told in caught.value.hint


def test_levers_of_a_step(lane: Lane) -> None:
    chunked = canonical_knobs(lane, {"impl": "chunked"})
    assert [lever.slug() for lever in matching_levers(lane, chunked, {"impl": "einsum"})] == ["block_kv", "block_q", "impl=chunked"]
    assert [lever.slug() for lever in matching_levers(lane, {**chunked, "block_q": 256}, chunked)] == ["block_q"]
    assert [lever.slug() for lever in matching_levers(lane, {**chunked, "skip_masked": False}, chunked)] == ["skip_masked=false"]
    assert matching_levers(lane, chunked, chunked) == ()
