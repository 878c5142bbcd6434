"""File an experiment from its receipts: rows, nodes and edges in one transaction, through the refusing tables.

It reads nothing but the chain, so a rebuilt graph is filled by the same code that filled the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kgagent.errors import EvidenceError
from kgagent.evidence.diff import diff
from kgagent.evidence.hlo import parse_hlo
from kgagent.evidence.record import record_diff, record_module
from kgagent.executor.memory import (
    DIGEST_CHARS,
    MADE_BY,
    ConfigurationFacts,
    HypothesisFacts,
    LaneFacts,
    ScopeFacts,
    knob_text,
    put_configuration,
    put_hypothesis,
    put_lane,
    put_scope,
)
from kgagent.executor.receipts import Receipt
from kgagent.graph import Graph, NewEdge, NewNode
from kgagent.objects import canonical_json

STATISTIC = "median"
TIMER = "wall_perf_counter_ns"


def filed(graph: Graph, experiment: str) -> bool:
    return bool(graph.value("SELECT e.filed FROM experiment e JOIN node n ON n.key = e.key WHERE n.id = ?", experiment))


def file_experiment(graph: Graph, receipts: Sequence[Receipt], *, lane_as_judged: bool = False) -> None:
    """Idempotent: a filed experiment is left as it is. `lane_as_judged` puts back the gates it was judged by (rebuild)."""
    told = {receipt.step: receipt.told for receipt in receipts}
    plan, judged = told["plan"], told["judge"]
    experiment = str(plan["experiment"])
    if filed(graph, experiment):
        return
    with graph.transaction():
        chosen = write_subject(graph, plan, lane_as_judged=lane_as_judged)
        key = _write_experiment(graph, plan, judged, chosen)
        _write_evidence(graph, key, receipts, judged)
        _write_numbers(graph, key, plan, judged)
        _write_verdict(graph, key, plan, judged, receipts[-1].sha)
        graph.put_edges(_edges(graph, plan, judged, chosen, told["check"]["artefacts"].get("hlo", "")))
        if judged["verdict"] == "supported" and plan["lane"]["kind"] == "kernel":
            graph.execute("UPDATE experiment SET merge_state = 'candidate' WHERE key = ?", key)
        if plan["hypothesis"]:
            graph.execute("UPDATE hypothesis SET status = 'done' WHERE key = ?", graph.key(plan["hypothesis"]["id"]))
        graph.execute("UPDATE experiment SET filed = 1 WHERE key = ?", key)


def write_subject(graph: Graph, plan: dict[str, Any], *, lane_as_judged: bool) -> ConfigurationFacts:
    """Lane, scope, configuration and hypothesis, where the graph lacks them."""
    gates = tuple((name, mandatory) for name, mandatory in plan["lane"]["gates"])
    put_lane(graph, LaneFacts(**{**plan["lane"], "gates": gates}), only_if_absent=not lane_as_judged)
    put_scope(graph, ScopeFacts(**plan["scope"]))
    chosen = ConfigurationFacts(**plan["configuration"])
    put_configuration(graph, chosen)
    if plan["hypothesis"] and not graph.value("SELECT 1 FROM hypothesis h JOIN node n ON n.key = h.key WHERE n.id = ?", plan["hypothesis"]["id"]):
        put_hypothesis(graph, HypothesisFacts(**plan["hypothesis"]), chosen)
    return chosen


def _write_experiment(graph: Graph, plan: dict[str, Any], judged: dict[str, Any], chosen: ConfigurationFacts) -> int:
    experiment = plan["experiment"]
    word = judged["verdict"] or plan["role"]
    data = {
        "role": plan["role"], "outcome": judged["outcome"], "verdict": judged["verdict"], "reason": judged["reason"], "knobs": chosen.knobs,
        "speedup_vs_reference": judged["comparison"]["speedup_vs_reference"] if judged["comparison"] else None, "branch": plan["branch"],
    }  # fmt: skip
    name = f"{experiment.removeprefix('exp:')} {knob_text(chosen.knobs)}"
    graph.put_nodes([NewNode(experiment, "experiment", name, MADE_BY, doc=f"{word}: {judged['reason']}", data=data)])
    key = graph.key(experiment)
    graph.insert(
        "experiment", key=key, lane=graph.key(f"lane:{chosen.lane}"), scope=graph.key(plan["scope_id"]), configuration=graph.key(chosen.id),
        hypothesis=graph.key(plan["hypothesis"]["id"]) if plan["hypothesis"] else None, role=plan["role"],
        baseline=graph.key(plan["baseline"]["experiment"]) if plan["baseline"] else None, rerun_of=graph.key(plan["rerun_of"]) if plan["rerun_of"] else None,
        origin="local", backend=plan["backend"], branch=plan["branch"], commit_sha=plan["commit"], started_at=plan["started_at"],
        finished_at=judged["finished_at"], outcome=judged["outcome"], detail=judged["detail"],
    )  # fmt: skip
    return key


def _write_evidence(graph: Graph, key: int, receipts: Sequence[Receipt], judged: dict[str, Any]) -> None:
    for role, sha in sorted({role: sha for receipt in receipts for role, sha in receipt.told.get("artefacts", {}).items()}.items()):
        graph.insert("artefact", experiment=key, role=role, sha=sha, bytes=len(graph.objects.get(sha)))
    for receipt in receipts:
        graph.insert("receipt", sha=receipt.sha, experiment=key, seq=receipt.seq, prev=receipt.prev, step=receipt.step, body=receipt.body)
    for gate in judged["gates"]:
        evidence = canonical_json(gate["evidence"])
        graph.insert(
            "gate", experiment=key, name=gate["name"], result=gate["result"], detail=gate["detail"], evidence=evidence, receipt=receipts[-1].sha
        )  # fmt: skip
    for guard in judged["guards"]:
        graph.insert("guard", experiment=key, metric=guard["metric"], value=guard["value"], bound=guard["bound"])


def _write_numbers(graph: Graph, key: int, plan: dict[str, Any], judged: dict[str, Any]) -> None:
    keys: dict[str, int] = {}
    for leg, value in judged["measured"].items():
        keys[leg] = graph.insert(
            "measurement", experiment=key, leg=leg, scope=graph.key(plan["scope_id"]), op_point=judged["op_point"], metric=plan["lane"]["metric"],
            unit=plan["lane"]["unit"], statistic=STATISTIC, value=value, samples=judged["samples"], timer=TIMER, device=plan["device"],
        )  # fmt: skip
        if leg == "candidate":
            id_ = measurement_id(plan["experiment"], judged["op_point"])
            data = {"value": value, "unit": plan["lane"]["unit"], "metric": plan["lane"]["metric"], "statistic": STATISTIC, "samples": judged["samples"]}
            graph.put_nodes([NewNode(id_, "measurement", f"{value:.3f} {plan['lane']['unit']} at {judged['op_point']} ({plan['device']})", MADE_BY, data=data)])
    if judged["comparison"]:
        graph.insert("comparison", experiment=key, candidate=keys["candidate"], baseline=keys["baseline"], **judged["comparison"])


def _write_verdict(graph: Graph, key: int, plan: dict[str, Any], judged: dict[str, Any], receipt: str) -> None:
    if judged["verdict"] is None:
        return
    graph.insert(
        "verdict", experiment=key, verdict=judged["verdict"], kind="measured", reason=judged["reason"], inputs=canonical_json(judged["rule_inputs"]),
        receipt=receipt, decided_at=judged["finished_at"],
    )  # fmt: skip
    data = {"verdict": judged["verdict"], "inputs": judged["rule_inputs"]}
    graph.put_nodes([NewNode(verdict_id(plan["experiment"]), "verdict", judged["verdict"], MADE_BY, doc=judged["reason"], data=data)])


def measurement_id(experiment: str, op_point: str) -> str:
    return f"meas:{experiment.removeprefix('exp:')}/{op_point}"


def verdict_id(experiment: str) -> str:
    return f"verdict:{experiment.removeprefix('exp:')}"


def _edges(graph: Graph, plan: dict[str, Any], judged: dict[str, Any], chosen: ConfigurationFacts, hlo_sha: str) -> list[NewEdge]:
    """A reader walks from verdict to measurement to profile, and from experiment to hypothesis, scope and configuration."""
    me, lane = plan["experiment"], f"lane:{chosen.lane}"
    found = [(me, "within", lane), (me, "at", plan["scope_id"]), (me, "uses", chosen.id)]
    measurement = measurement_id(me, judged["op_point"]) if "candidate" in judged["measured"] else None
    if judged["profile"]:
        profile = _profile(graph, plan, judged, chosen, hlo_sha)
        found += [(me, "produced", profile), (profile, "within", lane), (profile, "uses", chosen.id), (profile, "at", plan["scope_id"])]
        found += [(measurement, "based_on", profile)] if measurement else []
    if judged["verdict"] is not None:
        found.append((me, "produced", verdict_id(me)))
        found += [(verdict_id(me), "based_on", measurement)] if measurement else []
    if measurement:
        found.append((me, "produced", measurement))
    if plan["hypothesis"]:
        found.append((me, "based_on", plan["hypothesis"]["id"]))
        word = {"supported": "supports", "refuted": "refutes"}.get(judged["verdict"])
        found += [(me, word, plan["hypothesis"]["id"])] if word else []
    if plan["baseline"]:
        found.append((me, "based_on", plan["baseline"]["experiment"]))
    if plan["rerun_of"]:
        found.append((me, "supersedes", plan["rerun_of"]))
    return [NewEdge(src, type_, dst, MADE_BY, how="rule") for src, type_, dst in found]


def _profile(graph: Graph, plan: dict[str, Any], judged: dict[str, Any], chosen: ConfigurationFacts, hlo_sha: str) -> str:
    """The candidate's compile on this backend with its ops and source lines, and what it adds to and removes from its baseline's."""
    id_ = f"compile:{chosen.lane}/{plan['backend']}/{chosen.digest[:DIGEST_CHARS]}"
    data = {
        "status": "ok", "error": "", "topology": plan["backend"], "libtpu": "", "op_point": judged["op_point"], "knobs": chosen.knobs, "role": plan["role"],
        "hlo_sha": hlo_sha, **judged["profile"],
    }  # fmt: skip
    try:
        module = parse_hlo(graph.objects.get(hlo_sha), where=id_)
        record_module(graph, id_, module, lane=chosen.lane, label=plan["device"], data=data)
        baseline = plan["baseline"]
        if baseline and graph.node(baseline["profile"]) is not None and baseline["profile"] != id_:
            record_diff(graph, id_, baseline["profile"], diff(parse_hlo(graph.objects.get(baseline["hlo"]), where=baseline["profile"]), module))
    except EvidenceError as error:  # a verdict doesn't hang on whether its program can be shown
        told = {**data, "label": plan["device"], "unread": error.what}
        graph.put_nodes([NewNode(id_, "profile", id_.partition(":")[2], MADE_BY, doc=f"{plan['device']}: {error.what}", data=told)])
    return id_
