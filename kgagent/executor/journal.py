"""The journal: every experiment a row that moves through named steps, written before anything relies on it.

It is its own database beside the receipts, so that graph.db can be thrown away in the middle of a run.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kgagent.errors import Busy, KgError, StorageError
from kgagent.graph.store import translate
from kgagent.workspace import Workspace

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS run (
         id TEXT PRIMARY KEY, lane TEXT NOT NULL, hypothesis TEXT, state TEXT NOT NULL CHECK (state IN ('open', 'filed')),
         opened_at TEXT NOT NULL, closed_at TEXT) STRICT""",
    """CREATE TABLE IF NOT EXISTS step (
         run TEXT NOT NULL REFERENCES run(id), name TEXT NOT NULL, started_at TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 1,
         done_at TEXT, payload TEXT CHECK (payload IS NULL OR json_valid(payload)), PRIMARY KEY (run, name)) STRICT""",
    """CREATE TABLE IF NOT EXISTS noise (
         place TEXT PRIMARY KEY, floor_frac REAL NOT NULL, payload TEXT NOT NULL CHECK (json_valid(payload)), measured_at TEXT NOT NULL) STRICT""",
)


@dataclass(frozen=True, slots=True)
class OpenRun:
    """An experiment that was begun and not filed."""

    id: str
    lane: str
    hypothesis: str | None


def now() -> str:
    """UTC, to the microsecond: two receipts of one step sort."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


class Journal:
    """The open journal; each write is durable when the call returns."""

    def __init__(self, workspace: Workspace) -> None:
        self.path = workspace.journal_db
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.db = sqlite3.connect(self.path, timeout=30.0, isolation_level=None)
            self.db.execute("PRAGMA journal_mode = WAL")
            self.db.execute("PRAGMA synchronous = FULL")
            self.db.execute("PRAGMA foreign_keys = ON")
            for statement in SCHEMA:
                self.db.execute(statement)
        except OSError as error:
            raise StorageError(f"can't open the journal: {error.strerror or error}", where=str(self.path)) from error
        except sqlite3.Error as error:
            raise self._told(error) from error

    def _told(self, error: sqlite3.Error) -> KgError:
        """Sqlite's error as ours; a damaged journal can be done without, unlike what it stands beside."""
        told = translate(error, str(self.path))
        if isinstance(error, sqlite3.DatabaseError) and ("malformed" in str(error) or "not a database" in str(error)):
            hint = "move it away and go on: filed experiments are in raw/runs; lost are runs cut before they were filed"
            return StorageError(f"the journal is damaged: {error}", where=str(self.path), hint=hint)
        return told

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.db.close()

    def _write(self, sql: str, *values: Any) -> None:
        try:
            self.db.execute(sql, values)
        except sqlite3.Error as error:
            raise self._told(error) from error

    def _rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            return self.db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._told(error) from error

    def open(self, run: str, lane: str, hypothesis: str | None) -> None:
        self._write("INSERT OR IGNORE INTO run(id, lane, hypothesis, state, opened_at) VALUES (?, ?, ?, 'open', ?)", run, lane, hypothesis, now())

    def close(self, run: str) -> None:
        self._write("UPDATE run SET state = 'filed', closed_at = ? WHERE id = ? AND state = 'open'", now(), run)

    def drop(self, run: str) -> None:
        """Forget a run that came to nothing before its plan was whole."""
        self._write("DELETE FROM step WHERE run = ? AND run NOT IN (SELECT run FROM step WHERE done_at IS NOT NULL)", run)
        self._write("DELETE FROM run WHERE id = ? AND id NOT IN (SELECT run FROM step)", run)

    def open_runs(self) -> tuple[OpenRun, ...]:
        return tuple(OpenRun(*row) for row in self._rows("SELECT id, lane, hypothesis FROM run WHERE state = 'open' ORDER BY opened_at, id"))

    def runs(self, lane: str) -> tuple[str, ...]:
        return tuple(row[0] for row in self._rows("SELECT id FROM run WHERE lane = ? ORDER BY id", lane))

    def done(self, run: str, name: str) -> dict[str, Any] | None:
        """The payload of a whole step, or None."""
        rows = self._rows("SELECT payload FROM step WHERE run = ? AND name = ? AND done_at IS NOT NULL", run, name)
        return json.loads(rows[0][0]) if rows else None

    def steps(self, run: str) -> dict[str, int]:
        """Attempts of each step begun, in order."""
        return dict(self._rows("SELECT name, attempts FROM step WHERE run = ? ORDER BY started_at", run))

    def begin(self, run: str, name: str) -> None:
        self._write("INSERT INTO step(run, name, started_at) VALUES (?, ?, ?) ON CONFLICT(run, name) DO UPDATE SET attempts = attempts + 1", run, name, now())

    def finish(self, run: str, name: str, payload: dict[str, Any]) -> None:
        text = json.dumps(payload, sort_keys=True, allow_nan=False)
        self._write("UPDATE step SET payload = ?, done_at = ? WHERE run = ? AND name = ? AND done_at IS NULL", text, now(), run, name)

    def noise(self, place: str) -> dict[str, Any] | None:
        """The A/A calibration kept for a lane, scope, machine and day."""
        rows = self._rows("SELECT payload FROM noise WHERE place = ?", place)
        return json.loads(rows[0][0]) if rows else None

    def keep_noise(self, place: str, floor_frac: float, payload: dict[str, Any]) -> None:
        text = json.dumps(payload, sort_keys=True, allow_nan=False)
        self._write("INSERT OR REPLACE INTO noise(place, floor_frac, payload, measured_at) VALUES (?, ?, ?, ?)", place, floor_frac, text, now())


_held = threading.local()


@contextmanager
def one_loop(workspace: Workspace) -> Iterator[None]:
    """Only one thread of one process runs experiments in a workspace; the lock dies with its holder, however that dies.

    Its holder may take it again, so that a loop can keep it from its first experiment to its last.
    """
    path = workspace.raw / "journal.lock"
    mine: set[Path] = _held.__dict__.setdefault("paths", set())
    if path in mine:
        yield
        return
    handle = _lock(path, workspace)
    mine.add(path)
    try:
        yield
    finally:
        mine.discard(path)
        os.close(handle)


def _lock(path: Path, workspace: Workspace) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StorageError(f"can't lock the journal: {error.strerror or error}", where=str(path), hint="choose a workspace you can write to") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        hint = "wait for it, or stop it, then run this again"
        raise Busy("another kgagent runs experiments in this workspace", where=str(workspace.root), hint=hint) from error
    return handle
