"""raw/sources/NAME.json: what a source was when it was read, enough to read it again from raw/objects alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kgagent.errors import StorageError
from kgagent.ingest.compare import Change
from kgagent.ingest.records import Skipped
from kgagent.ingest.sources import Source
from kgagent.workspace import write_atomic


@dataclass(frozen=True, slots=True)
class Manifest:
    """A source and the hashes of its files; `order` is its place among the sources, since the first to define a name owns it."""

    source: Source
    files: tuple[tuple[str, str, int], ...]  # path, SHA-256, the file's time in nanoseconds (0: not known)
    passed_over: tuple[Skipped, ...]
    order: int


def write_manifest(folder: Path, source: Source, revision: str, files: Sequence[Change], passed_over: Sequence[Skipped], order: int) -> None:
    document = {
        "name": source.name,
        "locator": source.locator,
        "root": str(source.root),
        "revision": revision,
        "version": source.revision,
        "prefix": source.prefix,
        "folders": list(source.folders),
        "order": order,
        "files": {change.path: change.sha for change in files},
        "mtime_ns": {change.path: change.mtime_ns for change in files if change.mtime_ns},
        "passed_over": [[skipped.path, skipped.reason] for skipped in passed_over],
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / f"{source.name}.json", (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())


def read_manifests(folder: Path) -> list[Manifest]:
    """All manifests in the order their sources were first ingested."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            source = Source(document["name"], document["locator"], Path(document["root"]), document["version"], document["prefix"], tuple(document["folders"]))
            passed_over = tuple(Skipped(*pair) for pair in document["passed_over"])
            times = document.get("mtime_ns", {})  # manifests of older versions have none
            files = tuple((name, sha, int(times.get(name, 0))) for name, sha in document["files"].items())
            found.append(Manifest(source, files, passed_over, int(document["order"])))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"a source's manifest can't be read: {error}", where=str(path), hint="delete it and ingest that source again") from error
    return sorted(found, key=lambda manifest: (manifest.order, manifest.source.name))


def stored_files(manifest: Manifest) -> list[Change]:
    return [Change(path, sha, True, 0, mtime_ns) for path, sha, mtime_ns in manifest.files]
