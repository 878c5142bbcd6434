"""Each gate as a pure function: one fact changed from sound evidence, one gate that fails."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from kgagent.errors import ConfigError
from kgagent.executor.gates import GATES, Evidence, check_rules, judge
from kgagent.executor.hlo_text import canonical, fill
from kgagent.executor.records import CoverageObservation, Observations, Pair, PointObservation, Quad
from kgagent.lanes import Lane, load_lane
from kgagent.lanes.records import GateRule
from kgagent.objects import sha256_hex
from kgagent.workspace import create_workspace

HLO = """HloModule jit_call, entry_computation_layout={(f32[4]{0})->f32[4]{0}}

FileNames
1 "/a/candidate.py"

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY %main.3 (x.1: f32[4]) -> f32[4] {
  %x.1 = f32[4]{0} parameter(0), metadata={op_name="x{0}" stack_frame_id=1}
  ROOT %add.2 = f32[4]{0} add(%x.1, %x.1), metadata={op_name="a \\"b\\"" stack_frame_id=1}
}
"""


@pytest.fixture(scope="module")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Lane:
    return load_lane(create_workspace(tmp_path_factory.mktemp("gates") / "w"), "attention")


def point(**changes: Any) -> PointObservation:
    sound = PointObservation(
        "b1h8k2s1024d64-f32", 7, ("float32[4]",), ("float32[4]",), ("float32[4]",), ("float32[4]",), True, True, 2e-7, 1e-8, 1e-7, 1e-8, "a", "a", ("b", "b")
    )
    return dataclasses.replace(sound, **changes)


def pair(difference: float) -> Pair:
    return Pair("candidate", 1, 1, (Quad((1e6, 1e6), (1e6, 1e6)),), difference, 0.5)


def evidence(lane: Lane, *, seen: dict[str, Any] | None = None, points: tuple[PointObservation, ...] = (), **changes: Any) -> Evidence:
    observations = Observations(points or (point(),), (CoverageObservation("p", 0, True, True),), (), (), 0.1, 0, 0, 0, 1e9, "0")
    sound = Evidence(
        lane=lane,
        platform="cpu",
        observations=dataclasses.replace(observations, **(seen or {})),
        hlo=HLO.replace("add(", "multiply("),
        parent_hlo=HLO,
        knobs={"impl": "dpa"},
        parent_knobs={"impl": "einsum"},
        files_now={name: sha256_hex(lane.files[name]) for name in lane.immutable},
        pairs=(pair(1e-8),),
        candidate_ms=10.0,
        cores=2,
    )
    return dataclasses.replace(sound, **changes)


def failing(lane: Lane, told: Evidence) -> list[str]:
    results = (*judge(told, "before"), *judge(told, "after"))
    assert {result.name for result in results} == set(GATES)
    return [result.name for result in results if result.result == "fail"]


def test_sound_evidence_passes_all(lane: Lane) -> None:
    assert failing(lane, evidence(lane)) == []


@pytest.mark.parametrize(
    ("gate", "changes"),
    [
        ("signature", {"points": (point(outputs=("float32[3]",)),)}),
        ("signature", {"points": (point(outputs=("bfloat16[4]",)),)}),
        ("signature", {"points": (point(), point(inputs=("float32[4]", "float32[4]")))}),
        ("finite", {"points": (point(), point(finite=False))}),
        ("parity", {"points": (point(error_max=5e-7),)}),
        ("parity", {"points": (point(error_mean=5e-8),)}),
        ("parity", {"points": (point(error_max=float("nan")),)}),
        ("inputs_unchanged", {"points": (point(inputs_after="other"),)}),
        ("determinism", {"points": (point(output_hashes=("b", "c")),)}),
        ("coverage", {"seen": {"coverage": (CoverageObservation("p", 1, True, False),)}}),
        ("callbacks", {"seen": {"custom_calls": ("xla_ffi_python_cpu_callback",)}}),
        ("callbacks", {"seen": {"effects": ("IO",)}}),
        ("not_a_noop", {"hlo": HLO.replace("%add.2", "%add.99").replace("/a/candidate.py", "/b/other.py")}),
        ("mechanism", {"hlo": HLO + "  %b = f32[1,2,4,1024,64]{4,3,2,1,0} broadcast(%x)\n"}),
        ("immutable", {"files_now": {"reference.py": "0"}}),
        ("timed_output", {"pairs": (pair(1e-8), pair(0.5))}),
        ("timed_output", {"pairs": (pair(float("inf")),)}),
        ("roofline", {"candidate_ms": 1e-3}),
    ],
)
def test_one_wrong_fact_fails_its_gate(lane: Lane, gate: str, changes: dict[str, Any]) -> None:
    assert failing(lane, evidence(lane, **changes)) == [gate]


def test_known_pure_custom_calls_pass_and_ignored_noise_is_no_failure(lane: Lane) -> None:
    harmless = {"custom_calls": ("Sharding", "lapack_sgetrf_ffi"), "coverage": (CoverageObservation("p", 1, False, False),)}
    assert failing(lane, evidence(lane, seen=harmless)) == []
    assert failing(lane, evidence(lane, points=(point(finite=False, oracle_finite=False),))) == []


def test_a_reference_has_no_parent_to_differ_from(lane: Lane) -> None:
    results = {result.name: result.result for result in judge(evidence(lane, parent_hlo=None), "before")}
    assert results["mechanism"] == results["not_a_noop"] == "not_applicable"


def test_a_gate_nobody_wrote_is_refused(lane: Lane) -> None:
    check_rules(lane)
    with pytest.raises(ConfigError, match="doesn't exist"):
        check_rules(dataclasses.replace(lane, gates=(GateRule("vibes", True, ()),), folder=Path("/lane")))


def test_canonical_keeps_what_a_program_does() -> None:
    assert canonical(HLO) == canonical(HLO.replace("main.3", "main.8").replace("jit_call", "jit_other"))
    assert "metadata" not in canonical(HLO) and "candidate.py" not in canonical(HLO)
    assert canonical(HLO) != canonical(HLO.replace("f32", "bf16"))
    assert canonical(HLO) != canonical(HLO.replace("add(%x.1, %x.1)", "add(%x.1, %y.1)"))


def test_fill_leaves_other_braces_alone() -> None:
    assert fill(r"f32\[{seq},{seq}\]{1,0} \d{2} {unknown}", {"seq": 8}) == r"f32\[8,8\]{1,0} \d{2} {unknown}"


def test_a_guard_that_nothing_measures_is_refused(lane: Lane) -> None:
    """Left out of the verdict silently, it would be a bound that never holds anything."""
    check_rules(lane)
    with pytest.raises(ConfigError, match="compile_ms") as caught:
        check_rules(dataclasses.replace(lane, guards=(("compile_ms", 20.0),)))
    assert "compile_s" in caught.value.hint and "lane.toml" in caught.value.where
