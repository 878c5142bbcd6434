"""The best verified experiment of a lane here, read from the frontier view."""

from __future__ import annotations

import json

from kgagent.executor.memory import cpu_scope
from kgagent.executor.records import FrontierRow
from kgagent.graph import Graph
from kgagent.lanes import Lane


def frontier(graph: Graph, lane: Lane, *, scope: str | None = None) -> FrontierRow | None:
    """The frontier at a scope (default: this machine's); None before the reference ran."""
    rows = graph.rows(
        """SELECT e.id, c.id, s.id, k.knobs, f.speedup_vs_reference, x.branch, x.commit_sha FROM frontier f
           JOIN node e ON e.key = f.experiment JOIN node c ON c.key = f.configuration JOIN node s ON s.key = f.scope JOIN node l ON l.key = f.lane
           JOIN configuration k ON k.key = f.configuration JOIN experiment x ON x.key = f.experiment WHERE l.id = ? AND s.id = ?""",
        lane.id, scope or cpu_scope(lane).id,
    )  # fmt: skip
    if not rows:
        return None
    experiment, chosen, at, knobs, speedup, branch, commit = rows[0]
    return FrontierRow(experiment, chosen, at, json.loads(knobs), speedup, branch, commit)


def reference_experiment(graph: Graph, lane: Lane) -> str | None:
    """The filed reference at this machine's scope."""
    found = graph.value(
        """SELECT n.id FROM experiment e JOIN node n ON n.key = e.key JOIN node s ON s.key = e.scope JOIN node l ON l.key = e.lane
           WHERE l.id = ? AND s.id = ? AND e.role = 'reference' AND e.filed = 1 AND e.outcome = 'completed' ORDER BY e.key DESC LIMIT 1""",
        lane.id, cpu_scope(lane).id,
    )  # fmt: skip
    return str(found) if found else None
