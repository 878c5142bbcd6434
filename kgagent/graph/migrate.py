"""Numbered migrations from kgagent/schema, applied in one transaction each, through sqlite-utils.

Why not executescript: it commits whatever is open, and a crash would leave half a schema.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from importlib import resources

from kgagent.errors import StorageError


def migrations() -> list[tuple[int, str, str]]:
    """(number, name, sql) of every shipped migration, in order."""
    found = []
    for entry in resources.files("kgagent.schema").iterdir():
        if entry.name.endswith(".sql"):
            found.append((int(entry.name.split("_", 1)[0]), entry.name, entry.read_text(encoding="utf-8")))
    return sorted(found)


def statements(sql: str) -> Iterator[str]:
    """Whole statements of a script; a trigger's inner semicolons don't end it."""
    pending = ""
    for line in sql.splitlines(keepends=True):
        pending += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    if pending.strip() and not all(part.strip().startswith("--") or not part.strip() for part in pending.splitlines()):
        raise StorageError("a migration ends in the middle of a statement", hint="end it with a semicolon")


def newest() -> int:
    """The number of the newest shipped migration."""
    return migrations()[-1][0]


def migrate(connection: sqlite3.Connection, where: str) -> None:
    """Bring a database up to date; a newer one than this kgagent knows is refused, untouched."""
    import sqlite_utils

    have = connection.execute("PRAGMA user_version").fetchone()[0]
    if have > newest():
        what = f"graph.db was written by a newer kgagent (schema {have}, this one knows {newest()})"
        raise StorageError(what, where=where, hint="upgrade kgagent, or kgagent rebuild")
    database = sqlite_utils.Database(connection)
    for number, _, sql in migrations():
        if number <= have:
            continue
        with database.atomic():
            for statement in statements(sql):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {number}")
