"""Rows of one ingest: nodes kept by id, so that what others tied to a symbol survives its file being read again.

Bulk ingests insert text search rows in one statement after the nodes, inside the same transaction.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from kgagent.errors import IngestError
from kgagent.graph import Graph
from kgagent.graph.words import split_identifier
from kgagent.ingest.launches import Launch
from kgagent.ingest.modules import Module
from kgagent.ingest.relate import Related, Relation
from kgagent.ingest.shapes import Symbol

MADE_BY = "ingest"
BULK_FILES = 25  # from here on one statement for text search beats a trigger a row
EXTERNAL_DATA = '{"external": true}'
TEXT_TRIGGERS = ("node_text_insert", "node_text_update", "node_text_delete")
# Rules about edges that say `supports` or `refutes`: ingest writes none, which is checked before they are put back.
VERDICT_TRIGGERS = ("edge_supports", "edge_other_verdict")
TEXT_TABLES = (("node_fts", "name, words, doc"), ("node_trigram", "id"))
# Built after the rows where a bulk ingest adds much to what is there: building an index costs a sixth of filling it row by row.
LATE_INDEXES = ("edge_out", "edge_in", "edge_file", "node_kind", "node_file", "node_source")
LATE_SHARE = 6
EDGES_PER_FILE = 120  # measured over jax, tokamax and flax
BULK_CACHE_KB = 65_536  # with SQLite's own 2 MB a bulk transaction writes the same pages many times

NODE_INSERT = """INSERT INTO node(key, id, kind, name, words, doc, source, file, line_start, line_end, data, made_by)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'ingest')"""
NODE_UPDATE = """UPDATE node SET kind = ?, name = ?, words = ?, doc = ?, source = ?, file = ?, line_start = ?, line_end = ?, data = ?,
                 made_by = 'ingest' WHERE key = ? AND id = ?"""
NodeRow = tuple[int, str, str, str, str, str, int | None, int | None, int | None, int | None, str | None]


class Writer:
    """Writes into one open transaction."""

    def __init__(self, graph: Graph, *, files: int) -> None:
        bulk = files >= BULK_FILES
        self.graph = graph
        self.db = graph.db
        self.bulk = bulk
        self.next_key = int(graph.value("SELECT coalesce(max(key), 0) + 1 FROM node"))
        self.first_key = self.next_key
        self._keys: dict[str, int] = {}
        # With few ids known they are looked up one by one; a bulk ingest holds them all.
        self._complete = bulk
        if bulk:
            self._keys = dict(graph.rows("SELECT id, key FROM node"))
        self._triggers: list[str] = []
        self._indexes: list[str] = []
        self.first_edge = 0
        self._unindexed: set[int] = set()  # nodes from before whose text search rows were taken away
        if bulk:
            self.db.execute(f"PRAGMA cache_size = -{BULK_CACHE_KB}")
            self._set_aside(files)
        self._inserts: list[NodeRow] = []
        self._updates: list[NodeRow] = []

    def _set_aside(self, files: int) -> None:
        """Take away what is cheaper to build at the end; inside the transaction, so that a crash brings it back."""
        aside = (*TEXT_TRIGGERS, *VERDICT_TRIGGERS)
        self._triggers = [self._sql(name) for name in aside]
        for name in aside:
            self.db.execute(f"DROP TRIGGER {name}")
        self.first_edge = int(self.graph.value("SELECT coalesce(max(key), 0) + 1 FROM edge"))
        if self.graph.value("SELECT coalesce(max(key), 0) FROM edge") < files * EDGES_PER_FILE * LATE_SHARE:
            self._indexes = [self._sql(name) for name in LATE_INDEXES]
            for name in LATE_INDEXES:
                self.db.execute(f"DROP INDEX {name}")

    def _sql(self, name: str) -> str:
        return str(self.graph.value("SELECT sql FROM sqlite_master WHERE name = ?", name))

    # keys

    def known(self, id_: str) -> int | None:
        key = self._keys.get(id_)
        if key is None and not self._complete:
            key = self.graph.value("SELECT key FROM node WHERE id = ?", id_)
            if key is not None:
                self._keys[id_] = key
        return key

    def forget(self, id_: str) -> None:
        self._keys.pop(id_, None)

    # nodes

    def put(
        self, id_: str, kind: str, name: str, *, words: str | None = None, doc: str = "", source: int | None = None,
        file: int | None = None, start: int | None = None, end: int | None = None, data: str | None = None,
    ) -> int:  # fmt: skip
        """Queue a node and return its key; an existing one keeps its key and its edges."""
        key = self.known(id_)
        row = (key or self.next_key, id_, kind, name, split_identifier(name) if words is None else words, doc, source, file, start, end, data)
        if key is not None:
            self._updates.append(row)
            return key
        self._inserts.append(row)
        self._keys[id_] = self.next_key
        self.next_key += 1
        return self._keys[id_]

    def put_symbols(self, symbols: Sequence[Symbol], module: Module, source: int, file: int) -> None:
        """A file's symbols; names for people are the last part of the dotted one."""
        for symbol in symbols:
            name = symbol.qual.rsplit(".", 1)[-1] if symbol.qual else module.name.rsplit(".", 1)[-1]
            self.put(
                module.symbol_id(symbol.qual), "symbol", name, words=symbol.words, doc=symbol.doc, source=source, file=file,
                start=symbol.line_start, end=symbol.line_end, data=symbol.data,
            )  # fmt: skip

    def put_external(self, id_: str, dotted: str) -> int:
        key = self.known(id_)
        if key is not None:
            return key
        return self.put(id_, "symbol", dotted.rsplit(".", 1)[-1], data=EXTERNAL_DATA)

    def flush(self) -> None:
        """Write queued nodes."""
        if self._inserts:
            self.db.executemany(NODE_INSERT, self._inserts)
            self._inserts = []
        if self._updates:
            if self._triggers:
                self._take_text(row[0] for row in self._updates)
            self.db.executemany(NODE_UPDATE, ((*row[2:], *row[:2]) for row in self._updates))
            self._updates = []

    def finish(self) -> None:
        """Text search for everything inserted at once, then what was set aside."""
        self.flush()
        if self._triggers:
            keys = [(key,) for key in sorted(self._unindexed)]
            for table, columns in TEXT_TABLES:
                insert = f"INSERT INTO {table}(rowid, {columns}) SELECT key, {columns} FROM node WHERE"
                self.db.execute(f"{insert} key >= ? ORDER BY key", (self.first_key,))
                self.db.executemany(f"{insert} key = ?", keys)
            if self.graph.value("SELECT 1 FROM edge WHERE key >= ? AND type IN ('supports', 'refutes')", self.first_edge):
                raise IngestError("ingest may not say what only a verdict says", where="edges that support or refute")
            for sql in self._triggers:
                self.db.execute(sql)
            self._triggers = []
        self.build_indexes()

    def _take_text(self, keys: Iterable[int]) -> None:
        """Remove the search rows of nodes about to change; nodes of this ingest have none yet."""
        old = [key for key in dict.fromkeys(keys) if key < self.first_key and key not in self._unindexed]
        self._unindexed.update(old)
        for table, columns in TEXT_TABLES:
            sql = f"INSERT INTO {table}({table}, rowid, {columns}) SELECT 'delete', key, {columns} FROM node WHERE key = ?"
            self.db.executemany(sql, [(key,) for key in old])

    def build_indexes(self) -> None:
        for sql in self._indexes:
            self.db.execute(sql)
        self._indexes = []

    # edges and typed rows

    def put_relations(self, relations: Iterable[Relation], file: int) -> list[Relation]:
        """Edges that stand in a file; both ends are queued or known by now. Returns those with an end that nobody knows."""
        keys = self._keys
        rows, lost = [], []
        for relation in relations:
            src, dst = keys.get(relation.src) or self.known(relation.src), keys.get(relation.dst) or self.known(relation.dst)
            if src is None or dst is None:
                lost.append(relation)
                continue
            rows.append((src, relation.type, dst, file, relation.line, relation.how, json.dumps({"role": relation.role}) if relation.role else None))
        self.db.executemany("INSERT INTO edge(src, type, dst, file, line, how, made_by, data) VALUES (?, ?, ?, ?, ?, ?, 'ingest', ?)", rows)
        return lost

    def put_externals(self, related: Related) -> None:
        for id_, dotted in related.externals.items():
            self.put_external(id_, dotted)

    def put_knobs(self, tunables: dict[str, list[list[Any]]], module: Module, source: int, file: int) -> list[str]:
        """A knob a tunable; returns their ids."""
        ids = []
        for qual, rows in tunables.items():
            for name, line, default in rows:
                ids.append(knob_id(module, qual, name))
                data = json.dumps({"default": default, "of": f"{module.name}.{qual}"}, ensure_ascii=False)
                self.put(ids[-1], "knob", name, source=source, file=file, start=line, end=line, data=data)
        return ids

    def put_flags(self, flags: Sequence[Sequence[Any]], ids: Sequence[str], file: int) -> None:
        """A flag a node, shared by all who name it; the value stands on the edge. Whether the compiler knows it is said when asked."""
        rows: dict[tuple[int | None, int, int], tuple[Any, ...]] = {}
        for symbol, name, value, line in flags:
            key = self.put_external_flag(name)
            src = self.known(ids[symbol]) if symbol >= 0 else file
            rows.setdefault((src, key, line), (src, key, file, line, json.dumps({"value": value}, ensure_ascii=False) if value else None))
        self.flush()
        self.db.executemany(
            "INSERT OR IGNORE INTO edge(src, type, dst, file, line, how, made_by, data) VALUES (?, 'uses', ?, ?, ?, 'exact', 'ingest', ?)", rows.values()
        )

    def put_external_flag(self, name: str) -> int:
        known = self.known(f"flag:{name}")
        return known if known is not None else self.put(f"flag:{name}", "flag", name)

    def put_launches(self, launches: Sequence[Launch], ids: Sequence[str], module: Module, source: int, file: int) -> list[Relation]:
        """Kernel nodes and rows, and the edges that tie body, wrapper and knobs to them."""
        relations: list[Relation] = []
        rows = []
        for launch in launches:
            id_ = kernel_id(module, launch)
            words = split_identifier(f"{launch.name} {module.name}")
            wrapper = ids[launch.wrapper] if launch.wrapper >= 0 else None
            body = launch.bodies[0][0] if len(launch.bodies) == 1 else None
            data = {**launch.data, "bodies": [body_id for body_id, _ in launch.bodies]} if len(launch.bodies) > 1 else launch.data
            key = self.put(
                id_, "kernel", launch.name.partition("~")[0], words=words, doc="", source=source, file=file, start=launch.line, end=launch.line_end,
                data=json.dumps(data, ensure_ascii=False),
            )  # fmt: skip
            rows.append(
                (key, launch.api, launch.backend, launch.backend_how, file, launch.line, self.known(wrapper) if wrapper else None,
                 self.known(body) if body else None, launch.body_how, launch.body_text, launch.grid)
            )  # fmt: skip
            for symbol in dict.fromkeys((launch.inner, launch.wrapper)):
                if symbol >= 0:
                    relations.append(Relation(ids[symbol], "wraps", id_, launch.line, "exact"))
            relations += [Relation(body_id, "implements", id_, launch.line, how) for body_id, how in launch.bodies]
            relations += [Relation(knob, "tunes", id_, launch.line, "inferred") for knob in launch.knobs]
        self.flush()
        self.db.executemany("DELETE FROM kernel WHERE key = ?", [row[:1] for row in rows])
        self.db.executemany(
            """INSERT INTO kernel(key, api, backend, backend_how, launch_file, launch_line, wrapper, body, body_how, body_text, grid)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            rows,
        )
        return relations


def knob_id(module: Module, qual: str, name: str) -> str:
    return f"knob:{module.name}.{qual}.{name}{module.suffix}"


def kernel_id(module: Module, launch: Launch) -> str:
    return f"kernel:{module.name.replace('.', '/')}/{launch.name}{module.suffix}"


def clear_file(db: sqlite3.Connection, file: int) -> None:
    """Take away what ingest said in a file; nodes stay, so that what others tied to them does too."""
    db.execute("DELETE FROM edge WHERE file = ? AND made_by = 'ingest'", (file,))
    db.execute("DELETE FROM depends WHERE file = ?", (file,))
    db.execute("DELETE FROM kernel WHERE launch_file = ?", (file,))
