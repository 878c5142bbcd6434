"""An experiment as filed, for faces to render."""

from __future__ import annotations

import json
from typing import Any

from kgagent.errors import UnknownThing
from kgagent.executor import decode
from kgagent.executor.receipts import run_folder
from kgagent.executor.records import ExperimentReport
from kgagent.graph import Graph


def experiment_report(graph: Graph, experiment: str) -> ExperimentReport:
    """Read from the receipts in the graph."""
    graph.need(experiment)
    rows = graph.rows("SELECT r.step, r.body FROM receipt r JOIN node n ON n.key = r.experiment WHERE n.id = ? ORDER BY r.seq", experiment)
    told: dict[str, dict[str, Any]] = {step: json.loads(body) for step, body in rows}
    if "judge" not in told:
        raise UnknownThing(f"{experiment} has no receipts in the graph", hint="kgagent resume")
    plan, judged = told["plan"], told["judge"]
    comparison = judged["comparison"] or {}
    return ExperimentReport(
        experiment=experiment,
        lane=plan["lane"]["name"],
        role=plan["role"],
        hypothesis=plan["hypothesis"]["id"] if plan["hypothesis"] else None,
        configuration=f"config:{plan['lane']['name']}/{plan['configuration']['digest'][:8]}",
        knobs=plan["configuration"]["knobs"],
        baseline=plan["baseline"]["experiment"] if plan["baseline"] else None,
        outcome=judged["outcome"],
        detail=judged["detail"],
        verdict=judged["verdict"],
        reason=judged["reason"],
        speedup=comparison.get("speedup"),
        ci_low=comparison.get("ci_low"),
        ci_high=comparison.get("ci_high"),
        noise_floor_frac=comparison.get("noise_floor_frac"),
        speedup_vs_reference=comparison.get("speedup_vs_reference"),
        candidate_ms=judged["measured"].get("candidate"),
        device=plan["device"],
        gates=tuple(decode.gate(gate) for gate in judged["gates"]),
        branch=plan["branch"],
        commit_sha=plan["commit"],
        receipts=str(run_folder(graph.workspace, experiment)),
    )
