"""What "here" means: the workspace's lane, its scope and frontier, and the TPU topology it was last compiled for."""

from __future__ import annotations

from kgagent.ask.records import Here
from kgagent.graph import Graph, Node


def locate(graph: Graph, chip: str = "") -> Here:
    """The lane chosen in kgagent.toml, else the one with most experiments; `chip` narrows the topology to the one asked about."""
    lane, chosen_by = _lane(graph)
    if lane is None:
        return Here(None, None, None, None, "", chosen_by)
    frontier = graph.rows(
        """SELECT f.experiment, f.speedup_vs_reference, f.scope FROM frontier f JOIN experiment e ON e.key = f.experiment
           WHERE f.lane = ? ORDER BY e.finished_at DESC, e.key DESC LIMIT 1""",
        lane.key,
    )
    scope = graph.value("SELECT scope FROM experiment WHERE lane = ? ORDER BY key DESC LIMIT 1", lane.key)
    if scope is None:
        scope = graph.value("SELECT key FROM scope WHERE lane = ? ORDER BY key DESC LIMIT 1", lane.key)
    best = next((row for row in frontier if row[2] == scope), frontier[0] if frontier else None)
    return Here(
        lane,
        graph.node_by_key(scope) if scope is not None else None,
        graph.node_by_key(best[0]) if best else None,
        float(best[1]) if best else None,
        _topology(graph, lane, chip),
        chosen_by,
    )


def _lane(graph: Graph) -> tuple[Node | None, str]:
    """The lane and how it was found."""
    chosen = graph.workspace.current_lane()
    if chosen:
        lane = graph.node(f"lane:{chosen}")
        if lane is not None:
            return lane, "kgagent.toml"
    key = graph.value("SELECT lane FROM experiment GROUP BY lane ORDER BY count(*) DESC, lane LIMIT 1")
    if key is not None:
        return graph.node_by_key(key), "most experiments"
    key = graph.value("SELECT key FROM node WHERE kind = 'lane' ORDER BY name LIMIT 1")
    return (graph.node_by_key(key), "the only lane known") if key is not None else (None, "no lane is in the graph")


def _topology(graph: Graph, lane: Node, chip: str) -> str:
    """Topology of the newest ahead-of-time compile of the lane."""
    newest = graph.value(
        """SELECT json_extract(p.data, '$.topology') AS t FROM edge e JOIN node p ON p.key = e.src
           WHERE e.dst = ? AND e.type = 'within' AND p.kind = 'profile' AND coalesce(json_extract(p.data, '$.label'), '') <> 'cpu'
             AND coalesce(json_extract(p.data, '$.topology'), '') NOT IN ('', 'cpu') AND json_extract(p.data, '$.topology') LIKE ? ESCAPE '\\'
           ORDER BY p.key DESC LIMIT 1""",
        lane.key, chip.replace("\\", "").replace("%", "").replace("_", "\\_") + "%",
    )  # fmt: skip
    return str(newest) if newest else ""
