"""The plan of a lane: propose what is new, rank what is open, say what isn't known."""

from __future__ import annotations

from kgagent.executor import frontier
from kgagent.executor.memory import cpu_scope
from kgagent.graph import Graph
from kgagent.lanes import Lane, sync_lane
from kgagent.planner.history import concluded, coverage, open_ideas
from kgagent.planner.propose import default_knobs, propose
from kgagent.planner.records import Plan, Tried
from kgagent.planner.score import rank

PLATEAU_AFTER = 3  # concluded experiments in a row that moved nothing


def plan(graph: Graph, lane: Lane) -> Plan:
    """Rank the lane's open hypotheses at this machine's scope, after proposing every untried single move from the frontier."""
    sync_lane(graph, lane)
    scope = cpu_scope(lane).id
    best = frontier(graph, lane)
    start = best.knobs if best else default_knobs(lane)
    speedup = best.speedup_vs_reference if best else 1.0
    with graph.transaction():
        propose(graph, lane, scope, start, speedup)
    history = concluded(graph, speedup, scope)
    ideas = open_ideas(graph, lane, scope, start, speedup)
    ranked = rank(ideas, history, frontier_speedup=speedup, default_minutes=lane.budgets.experiment_minutes)
    covered = coverage(graph, lane, scope)
    return Plan(
        lane=lane.name,
        scope=scope,
        frontier=best.experiment if best else None,
        frontier_speedup=speedup,
        ranked=ranked,
        coverage=covered,
        plateau=_plateau([t for t in history if t.scope == scope]),
        unknown=_unknown(lane, best is not None, history, scope),
    )


def _plateau(history: list[Tried]) -> str:
    last = history[-PLATEAU_AFTER:]
    if len(last) < PLATEAU_AFTER or any(t.verdict == "supported" for t in last):
        return ""
    tried = ", ".join(f"{t.experiment} {t.verdict}" for t in last)
    return f"the last {len(last)} experiments moved nothing ({tried}): try an untried lever rather than another value"


def _unknown(lane: Lane, has_reference: bool, history: tuple[Tried, ...], scope: str) -> tuple[str, ...]:
    """What would sharpen this ranking."""
    said = []
    if not has_reference:
        said.append(f"the reference wasn't run at {scope}: every gain is a promise")
    if not any(t.scope == scope for t in history):
        said.append("no experiment of this lane at this scope: P is each lever's prior alone")
    if not any(t.device_class == "tpu" for t in history):
        said.append("nothing was timed on a TPU: this ranking is for the CPU, and CPU numbers don't move TPU beliefs")
    said.append("gains aren't bounded by a roofline: no profile of the frontier names its limit")
    return tuple(said)
