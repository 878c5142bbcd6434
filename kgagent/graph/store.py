"""The graph on disk: one writer, many readers, and refusals turned into errors a person understands.

Reads are plain sqlite3 (a read command starts in tens of milliseconds); sqlite-utils is imported only to migrate.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kgagent.errors import Busy, KgError, Refused, StorageError, UnknownThing
from kgagent.graph.records import Edge, NewEdge, NewNode, Node
from kgagent.graph.words import split_identifier
from kgagent.objects import Objects, sha256_hex
from kgagent.workspace import Workspace

NODE_COLUMNS = """n.key, n.id, n.kind, n.name, n.doc, n.made_by, n.line_start, n.line_end, n.data,
  (SELECT s.root || '/' || f.path FROM file f JOIN source s ON s.key = f.source WHERE f.key = coalesce(n.file, n.key)) AS path"""
EDGE_COLUMNS = """e.key, a.id, e.type, b.id, e.how, e.made_by, e.line, e.data,
  (SELECT s.root || '/' || f.path FROM file f JOIN source s ON s.key = f.source WHERE f.key = e.file) AS path"""


def node_of(row: tuple[Any, ...]) -> Node:
    """A Node from NODE_COLUMNS."""
    key, id_, kind, name, doc, made_by, start, end, data, path = row
    return Node(key, id_, kind, name, doc, made_by, path, start, end, json.loads(data) if data else {})


def edge_of(row: tuple[Any, ...]) -> Edge:
    """An Edge from EDGE_COLUMNS."""
    key, src, type_, dst, how, made_by, line, data, path = row
    return Edge(key, src, type_, dst, how, made_by, path, line, json.loads(data) if data else {})


class Graph:
    """A connection to graph.db. Open with `open_graph`; close it, or use it in a `with`."""

    def __init__(self, connection: sqlite3.Connection, workspace: Workspace, *, writable: bool) -> None:
        self.db = connection
        self.workspace = workspace
        self.writable = writable
        self.objects = Objects(workspace.objects)

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.db.close()

    # reading

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """All rows of a query; sqlite's own errors become `StorageError` or `Busy`."""
        try:
            return self.db.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise translate(error, str(self.workspace.graph_db)) from error

    def value(self, sql: str, *parameters: Any) -> Any:
        """The first column of the first row, or None."""
        rows = self.rows(sql, *parameters)
        return rows[0][0] if rows else None

    def node(self, id_: str) -> Node | None:
        rows = self.rows(f"SELECT {NODE_COLUMNS} FROM node n WHERE n.id = ?", id_)
        return node_of(rows[0]) if rows else None

    def node_by_key(self, key: int) -> Node:
        return node_of(self.rows(f"SELECT {NODE_COLUMNS} FROM node n WHERE n.key = ?", key)[0])

    def need(self, id_: str) -> Node:
        """The node, or `UnknownThing` naming the nearest ids."""
        node = self.node(id_)
        if node is None:
            from kgagent.graph.search import find

            near = ", ".join(hit.node.id for hit in find(self, id_, limit=3))
            raise UnknownThing(f"no node {id_!r}", hint=f"nearest: {near}" if near else "kgagent find TEXT")
        return node

    def key(self, id_: str) -> int:
        key = self.value("SELECT key FROM node WHERE id = ?", id_)
        if key is None:
            raise UnknownThing(f"no node {id_!r}", hint="kgagent find TEXT")
        return int(key)

    def edges(self, *, src: str | None = None, type: str | None = None, dst: str | None = None) -> list[Edge]:
        """Edges that match what is given, oldest first."""
        where, values = ["1"], []
        for column, value in (("a.id", src), ("e.type", type), ("b.id", dst)):
            if value is not None:
                where.append(f"{column} = ?")
                values.append(value)
        sql = f"SELECT {EDGE_COLUMNS} FROM edge e JOIN node a ON a.key = e.src JOIN node b ON b.key = e.dst WHERE {' AND '.join(where)} ORDER BY e.key"
        return [edge_of(row) for row in self.rows(sql, *values)]

    # writing

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; inside another transaction it is a savepoint. A second writer waits, then `Busy`."""
        if not self.writable:
            raise StorageError("graph.db was opened for reading", where=str(self.workspace.graph_db))
        nested = self.db.in_transaction
        try:
            self.db.execute("SAVEPOINT kg" if nested else "BEGIN IMMEDIATE")
            try:
                yield
                self.db.execute("RELEASE kg" if nested else "COMMIT")
            except BaseException:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK TO kg" if nested else "ROLLBACK")
                    if nested:
                        self.db.execute("RELEASE kg")
                raise
        except sqlite3.Error as error:
            raise translate(error, str(self.workspace.graph_db)) from error

    def put_nodes(self, nodes: Iterable[NewNode]) -> None:
        """Insert or replace by id; edges to a node survive its replacement."""
        values = [
            (n.id, n.kind, n.name, n.made_by, n.doc, split_identifier(n.name) if n.words is None else n.words, n.source, n.file,
             n.line_start, n.line_end, json.dumps(n.data, sort_keys=True) if n.data is not None else None)
            for n in nodes
        ]  # fmt: skip
        self._many(
            """INSERT INTO node(id, kind, name, made_by, doc, words, source, file, line_start, line_end, data)
               VALUES (?, ?, ?, ?, ?, ?, (SELECT key FROM node WHERE id = ?), (SELECT key FROM node WHERE id = ?), ?, ?, ?)
               ON CONFLICT(id) DO UPDATE SET kind = excluded.kind, name = excluded.name, made_by = excluded.made_by, doc = excluded.doc,
                 words = excluded.words, source = excluded.source, file = excluded.file, line_start = excluded.line_start,
                 line_end = excluded.line_end, data = excluded.data""",
            values,
        )

    def put_edges(self, edges: Iterable[NewEdge]) -> None:
        """Insert; the same relation on the same line is updated. An unknown end is an error, never dropped."""
        values = [(e.src, e.type, e.dst, e.made_by, e.how, e.file, e.line, json.dumps(e.data, sort_keys=True) if e.data is not None else None) for e in edges]
        self._many(
            """INSERT INTO edge(src, type, dst, made_by, how, file, line, data)
               VALUES ((SELECT key FROM node WHERE id = ?), ?, (SELECT key FROM node WHERE id = ?), ?, ?, (SELECT key FROM node WHERE id = ?), ?, ?)
               ON CONFLICT(src, type, dst, line) DO UPDATE SET made_by = excluded.made_by, how = excluded.how, file = excluded.file, data = excluded.data""",
            values,
        )

    def insert(self, table: str, **columns: Any) -> int:
        """One row into a typed table; a refusal names its rule. Returns the rowid (0 where there is none)."""
        names, marks = ", ".join(columns), ", ".join("?" for _ in columns)
        try:
            return self.db.execute(f"INSERT INTO {table}({names}) VALUES ({marks})", tuple(columns.values())).lastrowid or 0
        except sqlite3.Error as error:
            raise translate(error, table) from error

    def execute(self, sql: str, *parameters: Any) -> None:
        """One writing statement; refusals as `Refused`."""
        try:
            self.db.execute(sql, parameters)
        except sqlite3.Error as error:
            raise translate(error, str(self.workspace.graph_db)) from error

    def _many(self, sql: str, values: list[tuple[Any, ...]]) -> None:
        """One statement for many rows; its marks are bare `?`, since Python 3.12.0 to 3.12.3 warn of each numbered one in each row."""
        try:
            self.db.executemany(sql, values)
        except sqlite3.Error as error:
            raise translate(error, str(self.workspace.graph_db)) from error


def open_graph(workspace: Workspace, *, write: bool = False, busy_s: float = 30.0) -> Graph:
    """Open graph.db, making or migrating it first where needed (a reader too: it would find nothing otherwise)."""
    path = workspace.graph_db
    if write or not path.exists():
        return _open_writer(workspace, busy_s)
    try:
        connection, version = _connect_reader(path, "mode=ro", busy_s)
    except sqlite3.Error as error:
        if os.access(path.parent, os.W_OK) or not os.access(path, os.R_OK):
            raise translate(error, str(path)) from error
        connection, version = _connect_frozen(path, busy_s)
    if version != _known_version():
        connection.close()
        return _open_writer(workspace, busy_s)
    return Graph(connection, workspace, writable=False)


def _connect_reader(path: Path, how: str, busy_s: float) -> tuple[sqlite3.Connection, int]:
    connection = sqlite3.connect(f"{path.as_uri()}?{how}", uri=True, timeout=busy_s, isolation_level=None)
    connection.execute("PRAGMA query_only = 1")
    return connection, connection.execute("PRAGMA user_version").fetchone()[0]


def _connect_frozen(path: Path, busy_s: float) -> tuple[sqlite3.Connection, int]:
    """A graph on a disk that can't be written: WAL needs a file beside it, unless sqlite is told that nobody writes."""
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size > 0:
        raise StorageError(
            "graph.db was not closed by its writer, and can't be repaired there", where=str(path), hint="copy the workspace to a disk you can write to"
        )
    try:
        return _connect_reader(path, "mode=ro&immutable=1", busy_s)
    except sqlite3.Error as error:
        raise translate(error, str(path)) from error


def graph_is_lost(workspace: Workspace) -> bool:
    """Whether graph.db is gone or empty while raw/ tells of sources or runs: an answer from it would be that nothing was ever done."""
    path = workspace.graph_db
    if path.exists() and path.stat().st_size > 0:
        return False
    return any(workspace.sources.glob("*.json")) or any(workspace.runs.glob("*/*.json"))


def _known_version() -> int:
    from kgagent.graph.migrate import newest

    return newest()


def _open_writer(workspace: Workspace, busy_s: float) -> Graph:
    path = workspace.graph_db
    try:
        connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        prepare_writer(connection, workspace)
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != _known_version():
            from kgagent.graph.migrate import migrate

            migrate(connection, str(path))
    except sqlite3.Error as error:
        raise translate(error, str(path)) from error
    return Graph(connection, workspace, writable=True)


def prepare_writer(connection: sqlite3.Connection, workspace: Workspace) -> None:
    """Foreign keys on, and the functions the refusing triggers call."""
    objects = Objects(workspace.objects)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA recursive_triggers = ON")  # a REPLACE must meet the delete triggers too
    connection.create_function("kg_sha256", 1, lambda text: sha256_hex(text or ""), deterministic=True)
    connection.create_function("kg_object_intact", 1, lambda sha: int(objects.intact(sha or "")))


def translate(error: sqlite3.Error, where: str) -> KgError:
    """Sqlite's error as ours: what happened, where, what next."""
    text = str(error)
    if text.startswith("refused: "):
        return Refused(text.removeprefix("refused: "), where=where)
    if isinstance(error, sqlite3.IntegrityError):
        return Refused(f"the row breaks a rule of the schema: {text}", where=where)
    if "locked" in text or "busy" in text:
        return Busy("another kgagent is writing this graph", where=where, hint="wait for it to finish, then run this again")
    if "disk is full" in text or os.strerror(errno.ENOSPC) in text:
        return StorageError("the disk is full; nothing was half-written", where=where, hint="free some space, then run this again")
    if "readonly" in text or "unable to open" in text:
        return StorageError(f"can't write there: {text}", where=where, hint="choose a workspace on a disk you can write to (-w DIR)")
    if "malformed" in text or "not a database" in text:
        return StorageError(f"graph.db is damaged: {text}", where=where, hint="kgagent rebuild makes it again from raw/ and wiki/")
    return StorageError(f"sqlite: {text}", where=where)
