"""Whether graph.db says of an experiment what its receipts say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kgagent.executor.receipts import Receipt, run_folder
from kgagent.executor.records import Problem
from kgagent.graph import graph_is_lost, open_graph
from kgagent.workspace import Workspace

EXPERIMENT = """SELECT x.outcome, x.commit_sha, x.branch, v.verdict, c.speedup, c.ci_low, c.ci_high, c.noise_floor_frac, c.speedup_vs_reference
  FROM experiment x JOIN node n ON n.key = x.key LEFT JOIN verdict v ON v.experiment = x.key LEFT JOIN comparison c ON c.experiment = x.key WHERE n.id = ?"""
COMPARED = ("speedup", "ci_low", "ci_high", "noise_floor_frac", "speedup_vs_reference")


def row_problems(workspace: Workspace, chain: tuple[Receipt, ...], steps: dict[str, dict[str, Any]]) -> Iterator[Problem]:
    """Compare row by row; a graph that is gone is no problem, it can be rebuilt."""
    if graph_is_lost(workspace) or not workspace.graph_db.exists():
        return
    if not {"plan", "judge"} <= steps.keys():
        return  # told as missing receipts
    plan, judged = steps["plan"], steps["judge"]
    experiment = str(plan["experiment"])
    compared = judged["comparison"] or {}
    expected: dict[str, list[tuple[Any, ...]]] = {
        "experiment, verdict and comparison": [
            (judged["outcome"], plan["commit"], plan["branch"], judged["verdict"], *(compared.get(name) for name in COMPARED)),
        ],
        "receipts": [(receipt.seq, receipt.sha, receipt.body) for receipt in chain],
        "gates": sorted((gate["name"], gate["result"]) for gate in judged["gates"]),
        "measurements": sorted((leg, judged["op_point"], value) for leg, value in judged["measured"].items()),
        "guards": [(guard["metric"], guard["value"], guard["bound"]) for guard in judged["guards"]],
        "artefacts": sorted({(role, sha) for told in steps.values() for role, sha in told.get("artefacts", {}).items()}),
    }
    with open_graph(workspace) as graph:
        rows = graph.rows(EXPERIMENT, experiment)
        if not rows:
            yield Problem(experiment, "has receipts but is not in the graph: kgagent resume, or kgagent rebuild")
            return
        of = "JOIN node n ON n.key = t.experiment WHERE n.id = ?"
        found = {
            "experiment, verdict and comparison": rows,
            "receipts": graph.rows(f"SELECT t.seq, t.sha, t.body FROM receipt t {of} ORDER BY t.seq", experiment),
            "gates": graph.rows(f"SELECT t.name, t.result FROM gate t {of} ORDER BY t.name", experiment),
            "measurements": graph.rows(f"SELECT t.leg, t.op_point, t.value FROM measurement t {of} ORDER BY t.leg", experiment),
            "guards": graph.rows(f"SELECT t.metric, t.value, t.bound FROM guard t {of} ORDER BY t.metric", experiment),
            "artefacts": graph.rows(f"SELECT t.role, t.sha FROM artefact t {of} ORDER BY t.role", experiment),
        }
    for what, filed in expected.items():
        if found[what] != filed:
            yield Problem(f"graph.db {experiment}", f"its {what} differ from the receipts in raw/runs")


def unknown_experiments(workspace: Workspace) -> Iterator[Problem]:
    """Filed experiments whose receipts are gone."""
    if graph_is_lost(workspace) or not workspace.graph_db.exists():
        return
    with open_graph(workspace) as graph:
        ids = [row[0] for row in graph.rows("SELECT n.id FROM experiment e JOIN node n ON n.key = e.key WHERE e.filed = 1 AND e.origin = 'local'")]
    for experiment in ids:
        if not run_folder(workspace, experiment).is_dir():
            yield Problem(str(run_folder(workspace, experiment)), f"the receipts of {experiment} are gone")
