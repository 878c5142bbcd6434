"""Write a lane into the graph: its row, its gates, and its levers tied to the concepts and symbols they are about."""

from __future__ import annotations

import json

from kgagent.graph import Graph, NewEdge, NewNode
from kgagent.lanes.records import Lane, LaneLever

MADE_BY = "executor"


def lever_id(lane: Lane, lever: LaneLever) -> str:
    return f"lever:{lane.name}/{lever.slug()}"


def sync_lane(graph: Graph, lane: Lane) -> None:
    """Idempotent; creates no concept (a page makes those), and stands in for symbols not ingested yet."""
    with graph.transaction():
        graph.put_nodes([_lane_node(lane), *(_lever_node(lane, lever) for lever in lane.levers)])
        key = graph.key(lane.id)
        graph.execute(
            """INSERT INTO lane(key, kind, metric, unit, direction, refutation_reach, digest) VALUES (?, ?, ?, ?, ?, ?, ?)
               ON CONFLICT(key) DO UPDATE SET kind = excluded.kind, metric = excluded.metric, unit = excluded.unit, direction = excluded.direction,
                 refutation_reach = excluded.refutation_reach, digest = excluded.digest""",
            key, lane.kind, lane.metric, lane.unit, lane.direction, lane.refutation_reach, lane.digest,
        )  # fmt: skip
        graph.execute("DELETE FROM lane_gate WHERE lane = ?", key)
        for gate in lane.gates:
            graph.insert("lane_gate", lane=key, gate=gate.name, mandatory=int(gate.mandatory))
        _drop_edges_of_gone_levers(graph, lane)
        graph.put_nodes(_external(name) for lever in lane.levers for name in lever.symbols if graph.node(f"sym:{name}") is None)
        graph.put_edges(edge for lever in lane.levers for edge in _lever_edges(graph, lane, lever))


def _lane_node(lane: Lane) -> NewNode:
    data = {
        "kind": lane.kind, "metric": lane.metric, "unit": lane.unit, "direction": lane.direction, "problem": lane.problem, "digest": lane.digest,
        "folder": str(lane.folder), "op_points": [{"name": p.name, "role": p.role, "platforms": list(p.platforms), **p.mapping()} for p in lane.op_points],
        "knobs": {k.name: {"default": k.default, "choices": list(k.choices), "doc": k.doc} for k in lane.knobs},
    }  # fmt: skip
    return NewNode(lane.id, "lane", lane.name, MADE_BY, doc=lane.doc, data=data)


def _lever_node(lane: Lane, lever: LaneLever) -> NewNode:
    data = {
        "lane": lane.name, "knob": lever.knob, "value": lever.value, "mechanism": lever.mechanism, "predicted_signal": lever.predicted_signal,
        "falsification": lever.falsification, "prior": lever.prior, "expected_gain": lever.expected_gain,
        "concepts": list(lever.concepts), "symbols": list(lever.symbols),
    }  # fmt: skip
    return NewNode(lever_id(lane, lever), "lever", lever.slug(), MADE_BY, doc=lever.statement, data=data)


def _external(name: str) -> NewNode:
    return NewNode(f"sym:{name}", "symbol", name.rsplit(".", 1)[-1], MADE_BY, data={"external": True})


def _lever_edges(graph: Graph, lane: Lane, lever: LaneLever) -> list[NewEdge]:
    me = lever_id(lane, lever)
    concepts = [f"concept:{slug}" for slug in lever.concepts if graph.node(f"concept:{slug}") is not None]
    return [
        NewEdge(me, "within", lane.id, MADE_BY),
        *(NewEdge(me, "tests_concept", concept, MADE_BY, how="human") for concept in concepts),
        *(NewEdge(me, "uses", f"sym:{name}", MADE_BY, how="human") for name in lever.symbols),
    ]


def _drop_edges_of_gone_levers(graph: Graph, lane: Lane) -> None:
    """A lever taken out of lane.toml stays as a node (experiments point at it) but no longer belongs to the lane."""
    kept = json.dumps([lever_id(lane, lever) for lever in lane.levers])
    graph.execute(
        """DELETE FROM edge WHERE type IN ('within', 'tests_concept', 'uses') AND made_by = ? AND src IN (SELECT n.key FROM node n
           WHERE n.kind = 'lever' AND json_extract(n.data, '$.lane') = ? AND n.id NOT IN (SELECT value FROM json_each(?)))""",
        MADE_BY, lane.name, kept,
    )  # fmt: skip
