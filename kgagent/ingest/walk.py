"""The files of a source, with what the file system says of each; loops and giants are reported, never followed or read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from kgagent.ingest.records import Skipped
from kgagent.ingest.sources import Source

MAX_BYTES = 4_000_000  # the largest hand-written file seen in 30 JAX repositories is under 1 MB
MAX_PDF_BYTES = 40_000_000  # figures weigh more than text
SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages", ".git", ".venv", "venv"})


@dataclass(frozen=True, slots=True)
class Found:
    """A file of a source; `path` is relative to its root, with forward slashes."""

    path: str
    disk: str
    bytes: int
    mtime_ns: int


def files_of(source: Source, suffixes: tuple[str, ...]) -> tuple[list[Found], list[Skipped]]:
    """All files with these suffixes, sorted by path, and what was passed over."""
    found: list[Found] = []
    skipped: list[Skipped] = []
    seen: set[tuple[int, int]] = set()
    for folder in source.folders:
        start = os.path.join(source.root, folder) if folder else str(source.root)
        if os.path.isfile(start):
            status = os.stat(start)
            found.append(Found(folder, start, status.st_size, status.st_mtime_ns))
        else:
            found += _walk(start, folder, suffixes, skipped, seen)
    kept = []
    for file in sorted(found, key=lambda f: f.path):
        most = MAX_PDF_BYTES if file.path.endswith(".pdf") else MAX_BYTES
        if file.bytes > most:
            skipped.append(Skipped(file.path, f"{file.bytes / 1e6:.1f} MB: over {most / 1e6:.0f} MB, taken for generated"))
        else:
            kept.append(file)
    return kept, skipped


def _walk(folder: str, relative: str, suffixes: tuple[str, ...], skipped: list[Skipped], seen: set[tuple[int, int]]) -> Iterator[Found]:
    try:
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            skipped.append(Skipped(relative, "a link to a folder already read"))
            return
        seen.add((status.st_dev, status.st_ino))
        entries = sorted(os.scandir(folder), key=lambda e: e.name)
    except OSError as error:
        skipped.append(Skipped(relative, f"can't be read: {error.strerror}"))
        return
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        path = f"{relative}/{entry.name}" if relative else entry.name
        if not entry.name.isascii() and (shown := os.fsencode(path).decode("utf-8", "replace")) != path:
            skipped.append(Skipped(shown, "its name is not UTF-8"))
            continue
        try:
            if entry.is_dir():
                if entry.name not in SKIPPED_FOLDERS and not entry.name.endswith((".dist-info", ".egg-info")) and not entry.name.startswith("."):
                    yield from _walk(entry.path, path, suffixes, skipped, seen)
            elif entry.name.endswith(suffixes) and entry.is_file():
                status = entry.stat()
                yield Found(path, entry.path, status.st_size, status.st_mtime_ns)
        except OSError as error:
            skipped.append(Skipped(path, f"can't be read: {error.strerror}"))
