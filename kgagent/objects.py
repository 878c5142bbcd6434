"""Content-addressed artefacts under raw/objects: a file's name is the SHA-256 of what it holds, uncompressed.

Why: a receipt can name bytes that nobody can change unnoticed, and equal artefacts are stored once.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from kgagent.errors import StorageError


def sha256_hex(data: bytes | str) -> str:
    """Hex SHA-256; text is hashed as UTF-8."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def canonical_json(value: Any) -> str:
    """One spelling per value (sorted keys, no spaces, no NaN), so that equal values hash equal."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class Objects:
    """The store of artefacts; `put` is idempotent and atomic, `get` checks the hash it promises."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha: str) -> Path:
        return self.folder / sha[:2] / sha[2:]

    def put(self, data: bytes, *, durable: bool = True) -> str:
        """Store and return the SHA-256; `durable=False` skips fsync for what can be made again."""
        sha = sha256_hex(data)
        path = self.path(sha)
        if path.exists():
            return sha
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as handle:
                handle.write(zlib.compress(data, 1))
                if durable:
                    handle.flush()
                    os.fsync(handle.fileno())
            os.replace(temporary, path)
        except OSError as error:
            with suppress(OSError):  # what went wrong with the folder goes wrong here too, and must not hide it
                temporary.unlink(missing_ok=True)
            raise StorageError(f"can't store an artefact: {error.strerror or error}", where=str(path), hint="free disk space, then run it again") from error
        return sha

    def get(self, sha: str) -> bytes:
        """The bytes; `StorageError` when they are absent, damaged, or not what their name says."""
        path = self.path(sha)
        try:
            data = zlib.decompress(path.read_bytes())
        except FileNotFoundError as error:
            raise StorageError("artefact missing", where=str(path), hint="kgagent verify --all lists what else is missing") from error
        except (OSError, zlib.error) as error:
            raise StorageError(f"artefact unreadable: {error}", where=str(path)) from error
        if sha256_hex(data) != sha:
            raise StorageError("artefact changed since it was stored", where=str(path))
        return data

    def intact(self, sha: str) -> bool:
        """Whether the bytes are there and hash to their name."""
        try:
            self.get(sha)
        except StorageError:
            return False
        return True
