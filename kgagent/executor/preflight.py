"""Ask the TPU compiler about a candidate before any chip sees it: traced here, compiled for a topology, set beside the reference.

What it answers is kept in raw/preflights, so that a rebuilt graph has it again without compiling.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kgagent.compiler import Compiled, aot_compile, target_of
from kgagent.errors import StorageError
from kgagent.evidence.diff import OpRow, diff
from kgagent.evidence.hlo import parse_hlo
from kgagent.evidence.record import record_diff, record_module
from kgagent.executor.gates.mechanism import levers_acted
from kgagent.executor.memory import MADE_BY, ConfigurationFacts, LaneFacts, configuration, knob_text, lane_facts, put_configuration, put_lane
from kgagent.executor.records import GateResult, OpChange, Preflight, Progress
from kgagent.executor.workers import scratch_folder
from kgagent.graph import Graph, NewEdge, NewNode, plain
from kgagent.lanes import Lane, trace
from kgagent.lanes.records import Scalar
from kgagent.objects import canonical_json, sha256_hex
from kgagent.workspace import write_atomic

PLATFORM = "tpu"
LABEL = "predicted"
FOLDER = "preflights"


def preflight(
    graph: Graph, lane: Lane, knobs: Mapping[str, Scalar], topology: str, *, flags: Mapping[str, str] | None = None, progress: Progress | None = None
) -> Preflight:
    """Compile reference and candidate for a topology and record both with their difference. `Unavailable` where there is no libtpu."""
    say = progress or (lambda line: None)
    target = target_of(topology)
    chosen = configuration(lane, knobs, flags=flags)
    reference = configuration(lane, {}, code_sha=sha256_hex(lane.files["reference.py"]))
    timed = lane.points(PLATFORM, "timed")
    sides: dict[str, dict[str, Any]] = {}
    for side, facts, asked in (("reference", reference, None), ("candidate", chosen, chosen.knobs)):
        say(f"tracing the {side} for {topology}")
        with scratch_folder(graph.workspace) as scratch:
            traced = trace(lane, asked, platform=PLATFORM, points=timed, scratch=scratch, device=(target.device_kind, target.cores))
        if side == "reference":
            traced.need()
        if traced.outcome != "completed":
            sides[side] = _untraced(facts, traced.outcome, traced.message)
            continue
        cache = graph.workspace.scratch / "aot"
        used = chosen.flags if side == "candidate" else {}
        compiled = aot_compile(traced.exports[0].stablehlo, topology, flags=used, cache=cache, progress=progress)
        sides[side] = _compiled(graph, facts, compiled)
    told = {"lane": plain(lane_facts(lane)), "topology": topology, "op_point": timed[0].name, **sides}
    told["mechanism"] = plain(_mechanism(graph, lane, told))
    _keep(graph, told)
    return record_preflight(graph, told)


def _untraced(facts: ConfigurationFacts, outcome: str, message: str) -> dict[str, Any]:
    """A candidate that can't even be traced for the platform is blocked too."""
    return {
        "configuration": plain(facts), "status": "blocked", "error": f"{outcome}: {message}", "error_line": "", "hint": "run candidate.py by hand",
        "hlo": "", "memory": {}, "compile_s": 0.0, "kernels": [], "data": {},
    }  # fmt: skip


def _compiled(graph: Graph, facts: ConfigurationFacts, compiled: Compiled) -> dict[str, Any]:
    error = compiled.error
    data = {
        "device_kind": compiled.device_kind, "devices": compiled.devices, "jax": compiled.jax, "libtpu": compiled.libtpu, "flops": compiled.flops,
        "bytes_accessed": compiled.bytes_accessed, "cost_note": compiled.cost_note, "exported_sha": compiled.exported_sha,
        "refusal": plain(error), "kernels": list(compiled.kernels),
    }  # fmt: skip
    return {
        "configuration": plain(facts), "status": compiled.status, "error": error.what if error else "", "error_line": error.line if error else "",
        "hint": error.hint if error else "", "hlo": graph.objects.put(compiled.hlo_text.encode()) if compiled.hlo_text else "",
        "memory": plain(compiled.memory) or {}, "compile_s": compiled.compile_s, "kernels": list(compiled.kernels), "data": data,
    }  # fmt: skip


def _mechanism(graph: Graph, lane: Lane, told: dict[str, Any]) -> GateResult | None:
    """Whether the levers that lead from the reference to this candidate show in its HLO."""
    candidate = told["candidate"]
    if not candidate["hlo"]:
        return None
    hlo = graph.objects.get(candidate["hlo"]).decode()
    return levers_acted(lane, PLATFORM, candidate["configuration"]["knobs"], told["reference"]["configuration"]["knobs"], hlo)


def _keep(graph: Graph, told: dict[str, Any]) -> None:
    """One file a question: lane, topology and configuration."""
    folder = graph.workspace.raw / FOLDER
    path = folder / f"{_profile_id(told, 'candidate').removeprefix('compile:').replace('/', '-').replace(':', '-')}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, canonical_json(told).encode())
    except OSError as error:
        raise StorageError(f"can't keep the preflight: {error.strerror or error}", where=str(path), hint="free disk space, then run it again") from error


def refile_preflights(graph: Graph) -> int:
    """Record again all preflights that raw/ tells of; for a rebuilt graph."""
    paths = sorted((graph.workspace.raw / FOLDER).glob("*.json"))
    for path in paths:
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StorageError("a kept preflight can't be read", where=str(path), hint="delete it and run the preflight again") from error
        record_preflight(graph, told)
    return len(paths)


def _profile_id(told: dict[str, Any], side: str) -> str:
    return f"compile:{told['lane']['name']}/{told['topology']}/{told[side]['configuration']['digest'][:8]}"


def record_preflight(graph: Graph, told: dict[str, Any]) -> Preflight:
    """Profiles, ops, lines and the difference, from what was kept."""
    modules = {}
    gates = tuple((name, mandatory) for name, mandatory in told["lane"]["gates"])
    with graph.transaction():
        put_lane(graph, LaneFacts(**{**told["lane"], "gates": gates}), only_if_absent=True)
        for side in ("reference", "candidate"):
            facts, kept, id_ = ConfigurationFacts(**told[side]["configuration"]), told[side], _profile_id(told, side)
            put_configuration(graph, facts)
            data = {
                **kept["data"], "status": kept["status"], "error": kept["error"], "error_line": kept["error_line"], "memory": kept["memory"],
                "seconds": kept["compile_s"], "topology": told["topology"], "op_point": told["op_point"], "hlo_sha": kept["hlo"], "label": LABEL,
                "knobs": facts.knobs, "role": side, "mechanism": told["mechanism"] if side == "candidate" else None,
            }  # fmt: skip
            if kept["hlo"]:
                modules[side] = parse_hlo(graph.objects.get(kept["hlo"]), where=id_)
                record_module(graph, id_, modules[side], lane=told["lane"]["name"], label=LABEL, data=data)
            else:
                graph.put_nodes([NewNode(id_, "profile", f"{told['topology']}: {knob_text(facts.knobs)}", MADE_BY, doc=kept["error"], data=data)])
                graph.put_edges([NewEdge(id_, "within", f"lane:{told['lane']['name']}", MADE_BY)])
            graph.put_edges([NewEdge(id_, "uses", facts.id, MADE_BY)])
        changes = diff(modules["reference"], modules["candidate"]) if len(modules) == 2 else None
        if changes is not None:
            record_diff(graph, _profile_id(told, "candidate"), _profile_id(told, "reference"), changes)
    candidate = told["candidate"]
    facts = ConfigurationFacts(**candidate["configuration"])
    return Preflight(
        lane=told["lane"]["name"],
        topology=told["topology"],
        configuration=facts.id,
        knobs=facts.knobs,
        flags=facts.flags,
        profile=_profile_id(told, "candidate"),
        reference_profile=_profile_id(told, "reference"),
        status=candidate["status"],
        error=candidate["error"],
        error_line=candidate["error_line"],
        hint=candidate["hint"],
        memory=candidate["memory"],
        reference_memory=told["reference"]["memory"],
        compile_s=candidate["compile_s"],
        kernels=tuple(candidate["kernels"]),
        mechanism=GateResult(**told["mechanism"]) if told["mechanism"] else None,
        went=_changes(changes.went) if changes else (),
        came=_changes(changes.came) if changes else (),
    )


def _changes(rows: tuple[OpRow, ...]) -> tuple[OpChange, ...]:
    ordered = sorted(rows, key=lambda row: (-row.output_bytes * row.times, row.name))
    return tuple(OpChange(row.kernel or row.name, row.op_class, row.shape, row.output_bytes, row.line) for row in ordered)
