"""What the graph remembers, as the scorer reads it: concluded experiments and open hypotheses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from kgagent.graph import Graph
from kgagent.lanes import Lane
from kgagent.lanes.sync import lever_id
from kgagent.planner.propose import promised_ratio
from kgagent.planner.records import Coverage, Idea, Tried

CONCEPTS = """SELECT n.id FROM edge e JOIN node n ON n.key = e.dst WHERE e.src = ? AND e.type = 'tests_concept'"""

TRIED_LEVERS = """SELECT DISTINCT h.lever FROM experiment e JOIN hypothesis h ON h.key = e.hypothesis
  JOIN node s ON s.key = e.scope JOIN node l ON l.key = e.lane WHERE s.id = ? AND l.id = ? AND e.filed = 1"""


def device_class(backend: str) -> str:
    """cpu, tpu or predicted: beliefs don't cross from one to another."""
    return {"aot": "predicted"}.get(backend, backend)


def concluded(graph: Graph, frontier_speedup: float, scope: str) -> tuple[Tried, ...]:
    """Filed experiments of every lane that are not quarantined, read against today's frontier where the scope is the same."""
    rows = graph.rows(
        """SELECT n.id, h.key, h.lever, c.knobs, s.id, e.backend, v.verdict, e.started_at, e.finished_at,
                  (SELECT max(speedup_vs_reference) FROM comparison k WHERE k.experiment = e.key)
           FROM experiment e JOIN node n ON n.key = e.key JOIN hypothesis h ON h.key = e.hypothesis JOIN configuration c ON c.key = e.configuration
           JOIN node s ON s.key = e.scope JOIN verdict v ON v.experiment = e.key
           WHERE e.filed = 1 AND e.quarantined IS NULL ORDER BY e.key"""
    )
    found = []
    for id_, hypothesis, lever, knobs, where, backend, verdict, started, finished, speedup in rows:
        ratio = speedup / frontier_speedup if speedup is not None and where == scope else None
        found.append(
            Tried(id_, lever, json.loads(knobs), _concepts(graph, hypothesis), where, device_class(backend), verdict, ratio, _minutes(started, finished))
        )
    return tuple(found)


def open_ideas(graph: Graph, lane: Lane, scope: str, frontier_knobs: Mapping[str, object], frontier_speedup: float) -> tuple[Idea, ...]:
    """Open hypotheses of this lane at this scope, their gains promised anew from today's frontier, which was measured."""
    rows = graph.rows(
        """SELECT n.id, h.key, h.lever, c.knobs, h.prior, h.expected_gain, h.statement
           FROM hypothesis h JOIN node n ON n.key = h.key JOIN configuration c ON c.key = h.configuration
           JOIN node s ON s.key = h.scope JOIN node l ON l.key = h.lane
           WHERE l.id = ? AND s.id = ? AND h.status = 'open' ORDER BY h.key""",
        lane.id,
        scope,
    )
    ideas = []
    for id_, key, lever, knobs, prior, stated_gain, statement in rows:
        changed = json.loads(knobs)
        moved = promised_ratio(lane, changed, frontier_knobs)
        promise = frontier_speedup * moved if moved != 1.0 else stated_gain or frontier_speedup
        ideas.append(
            Idea(id_, lever, changed, _concepts(graph, key), scope, "cpu" if lane.chip in ("", "cpu") else lane.chip, prior or 0.5, promise, statement)
        )
    return tuple(ideas)


def coverage(graph: Graph, lane: Lane, scope: str) -> Coverage:
    """Levers of the lane that an experiment at this scope pulled, and the others."""
    tried = {row[0] for row in graph.rows(TRIED_LEVERS, scope, lane.id)}
    names = [lever_id(lane, lever) for lever in lane.levers]
    return Coverage(tuple(n for n in names if n in tried), tuple(n for n in names if n not in tried))


def _concepts(graph: Graph, hypothesis: int) -> frozenset[str]:
    return frozenset(row[0] for row in graph.rows(CONCEPTS, hypothesis))


def _minutes(started: str, finished: str | None) -> float | None:
    if not finished:
        return None
    try:
        seconds = (datetime.fromisoformat(finished) - datetime.fromisoformat(started)).total_seconds()
    except ValueError:
        return None
    return max(seconds, 0.0) / 60 or None
