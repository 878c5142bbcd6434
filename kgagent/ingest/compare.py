"""What an ingest has to do: which files are new, changed, moved or gone since the graph last read their source."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kgagent.graph import Graph
from kgagent.ingest import pdf
from kgagent.ingest.records import Skipped
from kgagent.ingest.shapes import FACTS_VERSION
from kgagent.ingest.sources import Source, module_name
from kgagent.ingest.walk import Found
from kgagent.objects import sha256_hex


@dataclass(slots=True)
class Change:
    """A file as it is now, and as the graph knows it."""

    path: str
    disk: str  # path on disk, or the hash of stored bytes
    stored: bool
    bytes: int
    mtime_ns: int
    module: str = ""
    is_package: bool = False
    submodules: tuple[str, ...] = ()
    key: int | None = None  # the graph's, where it knows the file
    was_module: str = ""
    sha: str = ""
    status: str = "ok"
    reason: str = ""

    @classmethod
    def on_disk(cls, found: Found) -> Change:
        return cls(found.path, found.disk, False, found.bytes, found.mtime_ns)


@dataclass(slots=True)
class Plan:
    """The comparison's outcome."""

    source: Source
    files: list[Change]
    read: list[Change] = field(default_factory=list)
    deleted: list[Change] = field(default_factory=list)
    touched: list[Change] = field(default_factory=list)  # same bytes, new time
    duplicates: list[Skipped] = field(default_factory=list)
    known: bool = False
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def nothing_to_do(self) -> bool:
        return self.known and not self.read and not self.deleted

    @property
    def added(self) -> int:
        return sum(change.key is None for change in self.read)

    def moved(self) -> int:
        """Files whose bytes disappeared at one path and turned up at another."""
        gone = Counter(change.sha for change in self.deleted)
        come = Counter(change.sha for change in self.read if change.key is None)
        return sum((gone & come).values())

    def revision(self) -> str:
        """The package's version where there is one; else a digest of all bytes."""
        return self.source.revision or sha256_hex("\n".join(f"{c.path} {c.sha}" for c in self.files))[:12]


def named_apart(graph: Graph, source: Source) -> Source:
    """The same locator keeps its name; another one of the same name gets `-2`."""
    known = graph.rows("SELECT n.id FROM source s JOIN node n ON n.key = s.key WHERE s.locator = ?", source.locator)
    if known:
        return replace(source, name=known[0][0].removeprefix("src:"))
    name, count = source.name, 1
    while graph.value("SELECT 1 FROM node WHERE id = ?", f"src:{name}"):
        count += 1
        name = f"{source.name}-{count}"
    return replace(source, name=name)


def plan_changes(graph: Graph, source: Source, files: list[Change]) -> Plan:
    """Compare by size and time first, by hash where they differ; a file whose module name changed is read again."""
    row = graph.rows("SELECT s.key, s.data FROM source s WHERE s.locator = ?", source.locator)
    data = json.loads(row[0][1]) if row else {}
    current = data.get("facts_version") == FACTS_VERSION
    have = {}
    if row:
        for key, path, sha, size, mtime, status, reason, module in graph.rows(
            """SELECT f.key, f.path, f.sha, f.bytes, f.mtime_ns, f.status, f.reason, m.name FROM file f LEFT JOIN module m ON m.file = f.key
               WHERE f.source = ?""",
            row[0][0],
        ):
            have[path] = Change(path, "", False, size, mtime, key=key, was_module=module or "", sha=sha, status=status, reason=reason)
    packages = {file.path.rpartition("/")[0] for file in files if file.path.rpartition("/")[2] == "__init__.py"}
    for file in files:
        if file.path.endswith(".py"):
            file.module, file.is_package = module_name(source, file.path, packages)
    now, before = submodules(file.module for file in files), submodules(change.was_module for change in have.values())
    for file in files:
        file.submodules = now.get(file.module, ()) if file.is_package else ()
    plan = Plan(source, [], known=bool(row), data=data)
    taken: dict[str, str] = {}
    for file in sorted(files, key=lambda f: (not f.is_package, f.path)):
        if file.module and file.module in taken:
            plan.duplicates.append(Skipped(file.path, f"module {file.module} is already {taken[file.module]}"))
            continue
        taken[file.module] = file.path
        plan.files.append(file)
        known = have.pop(file.path, None)
        if known is None:
            plan.read.append(file)
            continue
        file.key, file.was_module = known.key, known.was_module
        moved_below = file.is_package and file.submodules != before.get(file.module, ())
        readable_now = known.status == "skipped" and known.reason == pdf.MISSING and pdf.available()
        if not current or moved_below or readable_now or (known.status != "skipped" and known.was_module != file.module) or not same_bytes(file, known, plan):
            plan.read.append(file)
            continue
        file.sha, file.bytes, file.status, file.reason = known.sha, known.bytes, known.status, known.reason
    plan.files.sort(key=lambda f: f.path)
    plan.read.sort(key=lambda f: f.path)
    plan.deleted += have.values()
    return plan


def submodules(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Package → names of the modules directly below it."""
    found: dict[str, set[str]] = {}
    for name in names:
        package, _, last = name.rpartition(".")
        if package:
            found.setdefault(package, set()).add(last)
    return {package: tuple(sorted(lasts)) for package, lasts in found.items()}


def same_bytes(file: Change, known: Change, plan: Plan) -> bool:
    if file.stored:
        return file.disk == known.sha
    if file.bytes != known.bytes:
        return False
    if file.mtime_ns == known.mtime_ns:
        return True
    try:
        same = sha256_hex(Path(file.disk).read_bytes()) == known.sha
    except OSError:
        return False
    if same:
        plan.touched.append(file)
    return same
