"""graph.db made again from raw/ (sources, runs, receipts) and the pages people wrote in wiki/.

In place and in one transaction: a reader keeps the graph it opened, and a crash keeps the old one whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kgagent.errors import ConfigError, StorageError
from kgagent.evidence.add import restore_profiles
from kgagent.executor import refile_all
from kgagent.graph import Graph, open_graph
from kgagent.graph.migrate import migrate
from kgagent.ingest import restore
from kgagent.knowledge import sync_concepts
from kgagent.lanes import list_lanes, load_lane, sync_lane
from kgagent.learn import connect
from kgagent.workspace import Workspace

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What came back; `problems` name what could not, and never stop the rest."""

    sources: int
    concepts: int
    mentions: int
    experiments: int
    preflights: int
    profiles: int
    nodes: int
    edges: int
    problems: tuple[str, ...]


def rebuild(workspace: Workspace, *, progress: Progress | None = None) -> RebuildReport:
    """Empty the graph and fill it again; a damaged graph.db is moved aside first, never deleted."""
    _set_damaged_aside(workspace.graph_db)
    say = progress or (lambda step, done, total: None)
    with open_graph(workspace, write=True) as graph:
        graph.db.execute("PRAGMA foreign_keys = OFF")
        with graph.transaction():
            say("emptying the graph", 0, 0)
            _drop_everything(graph)
            migrate(graph.db, str(workspace.graph_db))
            say("sources", 0, 0)
            sources = restore(graph, progress=progress)
            concepts = sync_concepts(graph)
            problems = _lanes(graph)
            say("experiments", 0, 0)
            filed = refile_all(graph)
            profiles = restore_profiles(graph)
            mentions, more = connect(graph, say)
            problems += (*(f"{p.where}: {p.what}" for p in filed.problems), *more)
            broken = graph.value("SELECT count(*) FROM pragma_foreign_key_check")
            if broken:
                raise StorageError(
                    f"the rebuilt graph has {broken} dangling references; the old graph was kept", where=str(workspace.graph_db), hint="report this"
                )
            nodes, edges = graph.value("SELECT count(*) FROM node"), graph.value("SELECT count(*) FROM edge")
        graph.db.execute("PRAGMA foreign_keys = ON")
        graph.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return RebuildReport(len(sources), concepts.concepts, mentions, filed.experiments, filed.preflights, len(profiles), nodes, edges, problems)


def _lanes(graph: Graph) -> tuple[str, ...]:
    """Lanes of the workspace, for their levers; a broken lane.toml is told, its experiments still come back."""
    problems = []
    for name in list_lanes(graph.workspace):
        try:
            sync_lane(graph, load_lane(graph.workspace, name))
        except ConfigError as error:
            problems.append(str(error))
    return tuple(problems)


def _set_damaged_aside(path: Path) -> None:
    import sqlite3

    if not path.exists():
        return
    try:
        connection = sqlite3.connect(path)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        ok = connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
        connection.close()
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            return
        ok = False
    if not ok:
        path.replace(path.with_name("graph.db.damaged"))
        for tail in ("-wal", "-shm"):
            path.with_name(path.name + tail).unlink(missing_ok=True)


def _drop_everything(graph: Graph) -> None:
    """Drop views, triggers, virtual tables and tables; the shadow tables of FTS go with their owner."""
    for kind in ("view", "trigger"):
        for (name,) in graph.rows("SELECT name FROM sqlite_master WHERE type = ?", kind):
            graph.execute(f'DROP {kind.upper()} "{name}"')
    for (name,) in graph.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL%'"):
        graph.execute(f'DROP TABLE "{name}"')
    for (name,) in graph.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"):
        graph.execute(f'DROP TABLE IF EXISTS "{name}"')
    graph.execute("PRAGMA user_version = 0")
