"""Make a workspace usable: folders, shipped lanes and concept pages, the graph.

Why copies: lanes and concept pages are a person's to edit; what they changed is never overwritten.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kgagent.errors import StorageError
from kgagent.graph import graph_is_lost, open_graph
from kgagent.knowledge import shipped_concepts, sync_concepts
from kgagent.lanes import shipped_lanes
from kgagent.workspace import create_workspace, write_atomic


@dataclass(frozen=True, slots=True)
class InitReport:
    """What a workspace holds after `initialise`, and how many existing files were left alone."""

    root: str
    concepts: int
    lanes: tuple[str, ...]
    kept: int


def initialise(root: Path, *, lane: str | None = "attention") -> InitReport:
    """Create or complete a workspace; running it again changes nothing that is there."""
    workspace = create_workspace(root, lane=lane)
    kept = 0
    lanes, concepts = shipped_lanes(), shipped_concepts()
    for source in sorted(lanes.rglob("*")):
        if source.is_file() and "__pycache__" not in source.parts:
            kept += _copy(source, workspace.lanes / source.relative_to(lanes))
    for source in sorted(concepts.glob("*.md")):
        kept += _copy(source, workspace.concepts / source.name)
    if not graph_is_lost(workspace):  # kgagent rebuild brings that one back whole
        with open_graph(workspace, write=True) as graph:
            sync_concepts(graph)
    names = tuple(sorted(p.parent.name for p in workspace.lanes.glob("*/lane.toml")))
    return InitReport(str(workspace.root), len(list(workspace.concepts.glob("*.md"))), names, kept)


def _copy(source: Path, target: Path) -> int:
    """Copy unless something is there; 1 when it was kept as it stood."""
    if target.exists():
        return 1
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, source.read_bytes())
    except OSError as error:
        raise StorageError(f"can't write a workspace file: {error.strerror or error}", where=str(target), hint="free some space, then run it again") from error
    return 0
