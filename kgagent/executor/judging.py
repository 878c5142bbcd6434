"""From stored evidence to the last receipt: gates, interval, rule, numbers. Pure but for reading artefacts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from kgagent.executor import decode
from kgagent.executor.gates import Evidence, judge
from kgagent.executor.journal import now
from kgagent.executor.records import GateResult, Interval, Observations, Pair
from kgagent.executor.rule import decide, promise_over_baseline
from kgagent.executor.stats import interval, median_ms, sample_count
from kgagent.graph import plain
from kgagent.lanes import Lane
from kgagent.objects import Objects, sha256_hex

BYTES_PER_MB = 2**20


def evidence_of(objects: Objects, lane: Lane, plan: Mapping[str, Any], checked: Mapping[str, Any]) -> Evidence:
    """What the gates before timing may look at."""
    baseline = plan["baseline"]
    return Evidence(
        lane=lane,
        platform=plan["backend"],
        observations=decode.observations(json.loads(objects.get(checked["observations"]))),
        hlo=objects.get(checked["hlo"]).decode(),
        parent_hlo=objects.get(baseline["hlo"]).decode() if baseline else None,
        knobs=plan["configuration"]["knobs"],
        parent_knobs=baseline["knobs"] if baseline else {},
        files_now=_files_now(lane),
        cores=int(plan["environment"]["cores"]),
    )


def _files_now(lane: Lane) -> dict[str, str]:
    found = {name: lane.folder / name for name in lane.immutable}
    return {name: sha256_hex(path.read_bytes()) for name, path in found.items() if path.is_file()}


def guards_of(lane: Lane, observations: Observations) -> dict[str, tuple[float, float]]:
    """The lane's guarded metrics with their bounds; smaller is better."""
    values = {"compile_s": observations.compile_s, "temp_mb": observations.temp_bytes / BYTES_PER_MB}
    return {name: (values[name], bound) for name, bound in lane.guards}


def judge_body(
    plan: Mapping[str, Any],
    lane: Lane,
    outcome: str,
    detail: str,
    evidence: Evidence | None,
    early: Sequence[GateResult],
    pairs: Sequence[Pair],
    noise_floor_frac: float,
) -> dict[str, Any]:
    """The last receipt's contents. `early` are the results that stood before timing; late gates speak here."""
    timed = bool(pairs) and plan["baseline"] is not None
    measured = {leg: median_ms(pairs, leg) for leg in (("candidate", "baseline") if timed else ("candidate",))} if pairs else {}
    gates: tuple[GateResult, ...] = tuple(early)
    guards: dict[str, tuple[float, float]] = {}
    if evidence is not None:
        late = dataclasses.replace(evidence, pairs=tuple(pairs), candidate_ms=measured.get("candidate"), files_now=_files_now(lane))
        gates = (*early, *judge(late, "after"))
        guards = guards_of(lane, evidence.observations)
    seen: Interval | None = interval(pairs) if timed else None
    verdict = decide(outcome, detail, gates, guards, seen, noise_floor_frac, promise_over_baseline(plan))
    comparison = None
    if seen is not None and plan["baseline"]:
        comparison = {
            "speedup": seen.speedup, "ci_low": seen.low, "ci_high": seen.high, "noise_floor_frac": noise_floor_frac, "pairs": seen.pairs,
            "speedup_vs_reference": seen.speedup * plan["baseline"]["speedup_vs_reference"],
        }  # fmt: skip
    trial = plan["role"] == "trial"
    sound = outcome == "completed" and not verdict.inputs["failed_gates"]
    return {
        "outcome": outcome,
        "detail": detail,
        "gates": [plain(gate) for gate in gates],
        "guards": [{"metric": name, "value": value, "bound": bound} for name, (value, bound) in sorted(guards.items())],
        "op_point": lane.points(plan["backend"], "timed")[0].name,
        "measured": measured,
        "samples": sample_count(pairs) if pairs else 0,
        "comparison": comparison,
        "verdict": verdict.verdict if trial else None,
        "reason": verdict.reason if trial else ("the measure of this lane" if sound else verdict.reason),
        "rule_inputs": verdict.inputs,
        "profile": _profile(evidence.observations) if evidence and evidence.hlo else None,
        "finished_at": now(),
    }


def _profile(seen: Observations) -> dict[str, Any]:
    """What the compile of the timed operating point cost and holds."""
    memory = {"temp_bytes": seen.temp_bytes, "argument_bytes": seen.argument_bytes, "output_bytes": seen.output_bytes}
    return {"memory": memory, "seconds": seen.compile_s, "jax": seen.jax}


def narrate(told: Mapping[str, Any]) -> str:
    """One line for a person."""
    word = told["verdict"] or "reference"
    return f"{word}: {told['reason']}"
