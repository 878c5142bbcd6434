"""Taking a source out of the graph again; sources it overshadowed get their names back."""

from __future__ import annotations

from pathlib import Path

from kgagent.errors import UnknownThing
from kgagent.graph import Graph
from kgagent.ingest.compare import plan_changes
from kgagent.ingest.manifest import Manifest, read_manifests, stored_files
from kgagent.ingest.parse import parse
from kgagent.ingest.run import quiet_collector, tasks_of
from kgagent.ingest.sources import Source
from kgagent.ingest.update import Update


def forget(graph: Graph, name: str) -> None:
    """Remove a source, its files, symbols and kernels; what others say about its names stays, as external."""
    rows = graph.rows("SELECT s.key, s.locator, s.root FROM source s JOIN node n ON n.key = s.key WHERE n.id = ? AND n.made_by = 'ingest'", f"src:{name}")
    if not rows:
        known = ", ".join(n for (n,) in graph.rows("SELECT name FROM node WHERE kind = 'source' AND made_by = 'ingest' ORDER BY name"))
        raise UnknownThing(f"no source {name!r}", hint=f"ingested: {known}" if known else "nothing was ingested yet")
    key, locator, root = rows[0]
    with quiet_collector(), graph.transaction():
        shadowed = graph.rows(
            """SELECT DISTINCT s.locator FROM module mine JOIN module theirs ON theirs.name = mine.name AND theirs.source <> mine.source
               JOIN source s ON s.key = theirs.source WHERE mine.source = ? ORDER BY s.key""",
            key,
        )
        source = Source(name, locator, Path(root), "")
        plan = plan_changes(graph, source, [])
        Update(graph, plan, [], lambda step, done, total: None).remove()
        graph.execute("DELETE FROM node WHERE key = ?", key)
        manifests = {manifest.source.locator: manifest for manifest in read_manifests(graph.workspace.sources)}
        for (other,) in shadowed:
            if other in manifests:
                read_again(graph, manifests[other])
        (graph.workspace.sources / f"{name}.json").unlink(missing_ok=True)


def read_again(graph: Graph, manifest: Manifest) -> None:
    """Every file of a source once more, from the bytes that were kept."""
    plan = plan_changes(graph, manifest.source, stored_files(manifest))
    plan.read = list(plan.files)
    update = Update(graph, plan, list(manifest.passed_over), lambda step, done, total: None)
    update.moved |= {change.module for change in plan.files}  # their ids change: whoever named them is resolved again
    update.run(parse(task) for task, _ in tasks_of(graph, plan.read))
