"""What an ingest leaves behind: symbols that vanished, and external names nobody mentions any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kgagent.graph import Graph
from kgagent.graph.words import split_identifier
from kgagent.ingest.write import EXTERNAL_DATA, Writer, clear_file


class Sweep:
    """Notes what files owned before, and afterwards removes what no file owns now."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._owned: dict[str, int] = {}
        self._kept: set[str] = set()
        self._externals: set[int] = set()
        self._watched: set[int] = set()

    def watch(self, file: int) -> None:
        """Before a file's rows are touched."""
        if file in self._watched:
            return
        self._watched.add(file)
        self._owned.update(
            self.graph.rows("SELECT id, key FROM node WHERE file = ? AND made_by = 'ingest' AND kind IN ('symbol', 'knob', 'kernel', 'claim')", file)
        )
        rows = self.graph.rows(
            """SELECT n.key FROM edge e JOIN node n ON n.key IN (e.src, e.dst)
               WHERE e.file = ? AND n.file IS NULL AND n.kind IN ('symbol', 'flag') AND n.made_by = 'ingest'""",
            file,
        )
        self._externals.update(key for (key,) in rows)

    def keep(self, ids: Iterable[str]) -> None:
        self._kept.update(ids)

    def run(self, writer: Writer, deleted_files: Sequence[int]) -> None:
        """A vanished symbol that others still name becomes external; one that nobody names goes, and so do deleted files."""
        db = self.graph.db
        for id_, key in self._owned.items():
            if id_ in self._kept:
                continue
            db.execute("DELETE FROM edge WHERE src = ? AND made_by <> 'ingest'", (key,))  # what others saw in lines that are gone
            named = id_.startswith("sym:") and self.graph.value("SELECT 1 FROM edge WHERE dst = ?1 UNION ALL SELECT 1 FROM edge WHERE src = ?1 LIMIT 1", key)
            if named:
                name = id_.removeprefix("sym:").rsplit(".", 1)[-1]
                db.execute(
                    """UPDATE node SET kind = 'symbol', name = ?, words = ?, doc = '', source = NULL, file = NULL, line_start = NULL, line_end = NULL, data = ?
                       WHERE key = ?""",
                    (name, split_identifier(name), EXTERNAL_DATA, key),
                )
            else:
                db.execute("DELETE FROM node WHERE key = ?", (key,))
                writer.forget(id_)
        for key in deleted_files:
            clear_file(db, key)
            db.execute("DELETE FROM node WHERE key = ?", (key,))
        for key in sorted(self._externals):
            db.execute(
                """DELETE FROM node WHERE key = ?1 AND file IS NULL AND made_by = 'ingest' AND NOT EXISTS (SELECT 1 FROM edge WHERE src = ?1)
                   AND NOT EXISTS (SELECT 1 FROM edge WHERE dst = ?1) AND NOT EXISTS (SELECT 1 FROM kernel WHERE body = ?1)""",
                (key,),
            )
