"""Scopes, configurations and hypotheses as facts, and how they are written: rows, nodes and edges together.

The same writers serve a new hypothesis and a rebuilt graph, so both meet the same refusals.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kgagent.errors import Refused
from kgagent.executor.journal import now
from kgagent.executor.kept import keep_hypothesis
from kgagent.executor.machine import cores, cpu_model, version
from kgagent.graph import Graph, NewEdge, NewNode
from kgagent.lanes import Lane, candidate_code_sha, canonical_knobs
from kgagent.lanes.records import Scalar, spell
from kgagent.objects import canonical_json, sha256_hex

MADE_BY = "executor"
DIGEST_CHARS = 8


@dataclass(frozen=True, slots=True)
class LaneFacts:
    """The lane as an experiment was judged by it."""

    name: str
    kind: str
    metric: str
    unit: str
    direction: str
    refutation_reach: int
    doc: str
    digest: str
    gates: tuple[tuple[str, bool], ...]  # name, mandatory


@dataclass(frozen=True, slots=True)
class ScopeFacts:
    """What the lane and the machine fix."""

    lane: str
    digest: str
    chip: str
    topology: str
    problem: dict[str, Any]
    metric: str
    jax: str
    libtpu: str
    harness: str

    @property
    def id(self) -> str:
        return f"scope:{self.lane}/{self.digest[:DIGEST_CHARS]}"


@dataclass(frozen=True, slots=True)
class ConfigurationFacts:
    """What a candidate chooses, and the code it chooses with."""

    lane: str
    digest: str
    knobs: dict[str, Any]
    flags: dict[str, str]
    code_sha: str

    @property
    def id(self) -> str:
        return f"config:{self.lane}/{self.digest[:DIGEST_CHARS]}"


@dataclass(frozen=True, slots=True)
class HypothesisFacts:
    """A falsifiable statement about a configuration at a scope."""

    lane: str
    id: str
    scope: str
    configuration: str
    lever: str
    statement: str
    mechanism: str
    predicted_signal: str
    falsification: str
    origin: str
    expected_gain: float | None
    cost_minutes: float | None
    prior: float | None
    whats_new: str
    created_at: str


def lane_facts(lane: Lane) -> LaneFacts:
    gates = tuple((gate.name, gate.mandatory) for gate in lane.gates)
    return LaneFacts(lane.name, lane.kind, lane.metric, lane.unit, lane.direction, lane.refutation_reach, lane.doc, lane.digest, gates)


def cpu_scope(lane: Lane) -> ScopeFacts:
    """This machine's scope of a lane; the immutable files are in it, since they decide what a number means."""
    timed = lane.points("cpu", "timed")[0]
    problem = {"text": lane.problem, "op_point": timed.name, **timed.mapping(), "files": {name: sha256_hex(lane.files[name]) for name in lane.immutable}}
    fixed = {
        "chip": lane.chip or f"cpu: {cpu_model()}", "topology": lane.topology or f"{cores()} cores", "problem": problem, "metric": lane.metric,
        "jax": version("jax"), "libtpu": "", "harness": lane.harness,
    }  # fmt: skip
    return ScopeFacts(lane=lane.name, digest=sha256_hex(canonical_json(fixed)), **fixed)  # type: ignore[arg-type]


def configuration(lane: Lane, knobs: Mapping[str, Scalar], *, flags: Mapping[str, str] | None = None, code_sha: str | None = None) -> ConfigurationFacts:
    """Canonical knobs with the hash of the code that reads them."""
    chosen, code = canonical_knobs(lane, knobs), code_sha or candidate_code_sha(lane)
    digest = sha256_hex(canonical_json({"knobs": chosen, "flags": dict(flags or {}), "code": code}))
    return ConfigurationFacts(lane.name, digest, dict(chosen), dict(flags or {}), code)


def knob_text(knobs: Mapping[str, Any]) -> str:
    """`impl=splash block_q=256`, as people type them."""
    return " ".join(f"{name}={spell(value)}" for name, value in knobs.items())


def create_hypothesis(
    graph: Graph,
    lane: Lane,
    knobs: Mapping[str, Scalar],
    *,
    statement: str,
    mechanism: str,
    predicted_signal: str,
    falsification: str,
    origin: str,
    lever: str,
    prior: float | None,
    expected_gain: float | None,
    cost_minutes: float | None,
    whats_new: str = "",
) -> str:
    """Write an open hypothesis and return its id; the same change at the same point is `Refused`, with the tried one in the hint."""
    scope, chosen = cpu_scope(lane), configuration(lane, knobs)
    digest = sha256_hex(canonical_json([scope.id, chosen.digest, whats_new]))[:DIGEST_CHARS]
    facts = HypothesisFacts(
        lane.name, f"hyp:{lane.name}/{digest}", scope.id, chosen.id, lever, statement, mechanism, predicted_signal, falsification, origin,
        expected_gain, cost_minutes, prior, whats_new, now(),
    )  # fmt: skip
    try:
        with graph.transaction():
            put_lane(graph, lane_facts(lane), only_if_absent=True)
            put_scope(graph, scope)
            put_configuration(graph, chosen)
            put_hypothesis(graph, facts, chosen)
            keep_hypothesis(graph.workspace, facts.id, {"lane": lane_facts(lane), "scope": scope, "configuration": chosen, "hypothesis": facts})
    except Refused as error:
        known = graph.value(
            """SELECT n.id FROM hypothesis h JOIN node n ON n.key = h.key JOIN node s ON s.key = h.scope JOIN node c ON c.key = h.configuration
               WHERE s.id = ? AND c.id = ? ORDER BY h.key DESC LIMIT 1""",
            scope.id, chosen.id,
        )  # fmt: skip
        if known is None:
            raise
        raise Refused(error.what, where=f"{known} ({knob_text(chosen.knobs)})", hint=f"kgagent show {known}; to try it again say what is new") from error
    return facts.id


def put_lane(graph: Graph, facts: LaneFacts, *, only_if_absent: bool = False) -> None:
    """The lane's node, row and gates."""
    node_id = f"lane:{facts.name}"
    if only_if_absent and graph.value("SELECT 1 FROM lane l JOIN node n ON n.key = l.key WHERE n.id = ?", node_id):
        return
    if graph.node(node_id) is None:
        graph.put_nodes([NewNode(node_id, "lane", facts.name, MADE_BY, doc=facts.doc, data={"kind": facts.kind, "digest": facts.digest})])
    key = graph.key(node_id)
    graph.execute(
        """INSERT INTO lane(key, kind, metric, unit, direction, refutation_reach, digest) VALUES (?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT(key) DO UPDATE SET kind = excluded.kind, metric = excluded.metric, unit = excluded.unit, direction = excluded.direction,
             refutation_reach = excluded.refutation_reach, digest = excluded.digest""",
        key, facts.kind, facts.metric, facts.unit, facts.direction, facts.refutation_reach, facts.digest,
    )  # fmt: skip
    graph.execute("DELETE FROM lane_gate WHERE lane = ?", key)
    for gate, mandatory in facts.gates:
        graph.insert("lane_gate", lane=key, gate=gate, mandatory=int(mandatory))


def put_scope(graph: Graph, facts: ScopeFacts) -> None:
    """Idempotent: a scope is what its digest says."""
    name = f"{facts.lane} on {facts.chip}, {facts.topology}"
    data = {"chip": facts.chip, "topology": facts.topology, "problem": facts.problem, "metric": facts.metric, "jax": facts.jax, "libtpu": facts.libtpu}
    graph.put_nodes([NewNode(facts.id, "scope", name, MADE_BY, doc=str(facts.problem.get("text", "")), data=data)])
    graph.put_edges([NewEdge(facts.id, "within", f"lane:{facts.lane}", MADE_BY)])
    graph.execute(
        """INSERT INTO scope(key, lane, digest, chip, topology, problem, metric, jax, libtpu, harness)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING""",
        graph.key(facts.id), graph.key(f"lane:{facts.lane}"), facts.digest, facts.chip, facts.topology, canonical_json(facts.problem), facts.metric,
        facts.jax, facts.libtpu, facts.harness,
    )  # fmt: skip


def put_configuration(graph: Graph, facts: ConfigurationFacts) -> None:
    """Idempotent: a configuration is what its digest says."""
    data = {"knobs": facts.knobs, "flags": facts.flags, "code_sha": facts.code_sha}
    graph.put_nodes([NewNode(facts.id, "configuration", knob_text(facts.knobs) or "defaults", MADE_BY, data=data)])
    graph.put_edges([NewEdge(facts.id, "within", f"lane:{facts.lane}", MADE_BY)])
    graph.execute(
        "INSERT INTO configuration(key, lane, digest, knobs, flags, code_sha) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        graph.key(facts.id), graph.key(f"lane:{facts.lane}"), facts.digest, canonical_json(facts.knobs), canonical_json(facts.flags), facts.code_sha,
    )  # fmt: skip


def put_hypothesis(graph: Graph, facts: HypothesisFacts, chosen: ConfigurationFacts) -> None:
    """The row first meets the refusals; then node edges: lane, scope, configuration, lever, and the concepts its lever tests."""
    data = {
        "lever": facts.lever, "knobs": chosen.knobs, "mechanism": facts.mechanism, "predicted_signal": facts.predicted_signal,
        "falsification": facts.falsification, "origin": facts.origin, "prior": facts.prior, "expected_gain": facts.expected_gain,
    }  # fmt: skip
    graph.put_nodes([NewNode(facts.id, "hypothesis", knob_text(chosen.knobs), MADE_BY, doc=facts.statement, data=data)])
    graph.insert(
        "hypothesis", key=graph.key(facts.id), lane=graph.key(f"lane:{facts.lane}"), scope=graph.key(facts.scope), configuration=graph.key(facts.configuration),
        lever=facts.lever, statement=facts.statement, mechanism=facts.mechanism, predicted_signal=facts.predicted_signal, falsification=facts.falsification,
        origin=facts.origin, expected_gain=facts.expected_gain, cost_minutes=facts.cost_minutes, prior=facts.prior, whats_new=facts.whats_new,
        created_at=facts.created_at,
    )  # fmt: skip
    edges = [("within", f"lane:{facts.lane}"), ("at", facts.scope), ("based_on", facts.configuration)]
    if graph.node(facts.lever) is not None:
        edges.append(("uses", facts.lever))
        edges += [("tests_concept", edge.dst) for edge in graph.edges(src=facts.lever, type="tests_concept")]
    graph.put_edges(NewEdge(facts.id, type_, dst, MADE_BY) for type_, dst in edges)


def read_hypothesis(graph: Graph, id_: str) -> tuple[HypothesisFacts, ConfigurationFacts]:
    """A hypothesis with its configuration, as facts."""
    graph.need(id_)
    rows = graph.rows(
        """SELECT l.name, s.id, c.id, h.lever, h.statement, h.mechanism, h.predicted_signal, h.falsification, h.origin, h.expected_gain, h.cost_minutes,
             h.prior, h.whats_new, h.created_at, k.digest, k.knobs, k.flags, k.code_sha
           FROM hypothesis h JOIN node n ON n.key = h.key JOIN node l ON l.key = h.lane JOIN node s ON s.key = h.scope JOIN node c ON c.key = h.configuration
           JOIN configuration k ON k.key = h.configuration WHERE n.id = ?""",
        id_,
    )
    if not rows:
        raise Refused(f"{id_} is not a hypothesis", hint="kgagent plan LANE lists them")
    lane, scope, config, *rest, digest, knobs, flags, code_sha = rows[0]
    return HypothesisFacts(lane, id_, scope, config, *rest), ConfigurationFacts(lane, digest, json.loads(knobs), json.loads(flags), code_sha)
