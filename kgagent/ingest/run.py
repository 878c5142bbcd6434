"""One source into the graph, in one transaction: compare, parse what changed, resolve whatever that touches, sweep.

A kill at any moment leaves the old graph; an ingest that found no Python is an error, not an empty success.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from kgagent.errors import IngestError
from kgagent.graph import Graph
from kgagent.ingest.compare import Change, Plan, named_apart, plan_changes
from kgagent.ingest.manifest import read_manifests, stored_files, write_manifest
from kgagent.ingest.modules import Module, Modules, unpack
from kgagent.ingest.parse import Task
from kgagent.ingest.pool import parse_all
from kgagent.ingest.records import IngestReport, Skipped
from kgagent.ingest.relate import Relator, defines
from kgagent.ingest.resolve import Resolver
from kgagent.ingest.shapes import FACTS_VERSION, Parsed
from kgagent.ingest.sources import Source, locate
from kgagent.ingest.sweep import Sweep
from kgagent.ingest.walk import files_of
from kgagent.ingest.write import Writer, clear_file

Progress = Callable[[str, int, int], None]
SUFFIXES = (".py",)
BULK_FILES = 150  # from here on one statement for text search beats a trigger a row


def ingest(graph: Graph, locators: Sequence[str], *, progress: Progress | None = None) -> tuple[IngestReport, ...]:
    """Read each source into the graph, in the order given; each is whole before the next begins."""
    sources = [locate(locator) for locator in locators]  # a mistyped one is told before the first is read
    reports = []
    for source in sources:
        found, skipped = files_of(source, SUFFIXES)
        reports.append(_Run(graph, source, progress).run([Change.on_disk(f) for f in found], skipped))
    return tuple(reports)


def restore(graph: Graph, *, progress: Progress | None = None) -> tuple[IngestReport, ...]:
    """Every source again from raw/sources and raw/objects alone, as it was read then."""
    reports = []
    for manifest in read_manifests(graph.workspace.sources):
        reports.append(_Run(graph, manifest.source, progress).run(stored_files(manifest), []))
    return tuple(reports)


class _Run:
    """The ingest of one source."""

    def __init__(self, graph: Graph, source: Source, progress: Progress | None) -> None:
        self.graph, self.source = graph, source
        self.say = progress or (lambda step, done, total: None)
        self.started = time.perf_counter()

    def run(self, files: list[Change], skipped: list[Skipped]) -> IngestReport:
        if not files:
            reasons = f"; {len(skipped)} passed over, the first: {skipped[0]}" if skipped else ""
            raise IngestError(
                f"no Python in {self.source.locator}{reasons}", where=str(self.source.root), hint="name a folder that holds .py files, or pkg:NAME"
            )
        with quiet_collector(), self.graph.transaction():
            self.source = named_apart(self.graph, self.source)
            plan = plan_changes(self.graph, self.source, files)
            for change in plan.touched:
                self.graph.execute("UPDATE file SET mtime_ns = ? WHERE key = ?", change.mtime_ns, change.key)
            if plan.nothing_to_do and plan.data.get("revision") == self.source.revision:
                return self.report(plan, [*skipped, *plan.duplicates], 0, plan.data)
            report = self.write(plan, [*skipped, *plan.duplicates])
            order = self.graph.value("SELECT count(*) FROM source WHERE key < (SELECT key FROM source WHERE locator = ?)", self.source.locator)
        write_manifest(self.graph.workspace.sources, self.source, plan.revision(), plan.files, order)
        return report

    def write(self, plan: Plan, skipped: list[Skipped]) -> IngestReport:
        graph = self.graph
        writer = Writer(graph, bulk=len(plan.read) >= BULK_FILES)
        source = self.put_source(writer, plan)
        modules = load_modules(graph)
        sweep = Sweep(graph)
        facts: dict[int, bytes] = {}
        touched: dict[int, tuple[Module, str]] = {}
        surfaces_before: dict[int, bytes | None] = {}
        for change in plan.deleted:
            modules.remove(change.module, change.key)
        parsed: dict[int, Parsed] = {}
        tasks = [(Task(i, c.disk, c.stored, c.module, c.is_package, str(graph.objects.folder)), c.bytes) for i, c in enumerate(plan.read)]
        for done, result in enumerate(parse_all(tasks), 1):
            parsed[result.index] = result
            self.say(f"reading {self.source.name}", done, len(tasks))
        if not any(p.symbols for p in parsed.values()) and len(plan.read) == len(plan.files):
            first = next(iter(parsed.values()))
            raise IngestError(f"nothing in {self.source.locator} could be read: {first.reason}", where=str(self.source.root))
        moved_names: set[str] = {c.module for c in plan.deleted}
        for index, change in enumerate(plan.read):
            result = parsed.pop(index)
            change.sha, change.bytes = result.sha, result.bytes
            file = self.put_file(writer, change, result, source)
            sweep.watch(file)
            if change.key is not None:
                surfaces_before[file] = graph.value("SELECT surface FROM module WHERE file = ?", file)
                if change.was_module:
                    modules.remove(change.was_module, file)
            if result.status == "skipped":
                skipped = [*skipped, Skipped(change.path, result.reason)]
                moved_names.add(change.module)
                graph.db.execute("DELETE FROM module WHERE file = ?", (file,))
                touched[file] = (Module(change.module, source, file, ""), change.path)
                continue
            suffix = f"~{self.source.name}" if modules.owned_elsewhere(change.module, source) else ""
            module = Module(change.module, source, file, suffix, packed=result.surface)
            modules.add(module)
            touched[file] = (module, change.path)
            facts[file] = result.facts
            writer.put_symbols(result.symbols, module, source, file)
            sweep.keep(module.symbol_id(s.qual) for s in result.symbols)
            if surfaces_before.get(file) != result.surface or change.was_module != change.module:
                moved_names |= {change.module, change.was_module or change.module}
            writer.flush()
            graph.db.execute("INSERT OR REPLACE INTO module(file, source, name, surface) VALUES (?, ?, ?, ?)", (file, source, change.module, result.surface))
        problems = [*skipped, *(Skipped(c.path, c.reason) for c in plan.files if c.status == "partial")]
        again = self.dependents(moved_names, set(touched) | {c.key for c in plan.deleted if c.key is not None})
        for file, module, path in again:
            touched[file] = (modules.get(module.name, module.source) or module, path)
        for change in plan.deleted:
            sweep.watch(change.key)
            clear_file(graph.db, change.key)
        self.relate(writer, modules, sweep, touched, facts)
        sweep.run(writer, [c.key for c in plan.deleted])
        writer.finish()
        data = self.counts(source, skipped)
        graph.execute("UPDATE source SET data = ?, revision = ? WHERE key = ?", json.dumps(data), plan.revision(), source)
        return self.report(plan, problems, len(again), data)

    def put_source(self, writer: Writer, plan: Plan) -> int:
        id_ = f"src:{self.source.name}"
        key = writer.put(id_, "source", self.source.name, data=json.dumps({"locator": self.source.locator}))
        writer.flush()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.graph.execute(
            """INSERT INTO source(key, locator, root, revision, ingested_at) VALUES (?, ?, ?, ?, ?)
               ON CONFLICT(key) DO UPDATE SET root = excluded.root, revision = excluded.revision, ingested_at = excluded.ingested_at""",
            key, self.source.locator, str(self.source.root), self.source.revision, now,
        )  # fmt: skip
        return key

    def put_file(self, writer: Writer, change: Change, result: Parsed, source: int) -> int:
        id_ = f"file:{self.source.name}/{change.path}"
        key = writer.put(id_, "file", change.path.rsplit("/", 1)[-1], source=source, data=json.dumps({"module": change.module}))
        writer.flush()
        change.status, change.reason = result.status, result.reason
        self.graph.db.execute(
            """INSERT INTO file(key, source, path, sha, bytes, mtime_ns, status, reason, facts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
               ON CONFLICT(key) DO UPDATE SET sha = excluded.sha, bytes = excluded.bytes, mtime_ns = excluded.mtime_ns, status = excluded.status,
                 reason = excluded.reason, facts = excluded.facts""",
            (key, source, change.path, result.sha, result.bytes, change.mtime_ns, result.status, result.reason, result.facts or None),
        )
        return key

    def dependents(self, names: set[str], known: set[int]) -> list[tuple[int, Module, str]]:
        """Files read before whose lookups went through a module that is new, gone, or looks different now."""
        if not names:
            return []
        wanted = set(names)
        for name in names:
            parts = name.split(".")
            wanted.update(".".join(parts[:length]) for length in range(1, len(parts)))
        self.graph.db.execute("CREATE TEMP TABLE IF NOT EXISTS wanted_module(name TEXT PRIMARY KEY)")
        self.graph.db.execute("DELETE FROM wanted_module")
        self.graph.db.executemany("INSERT INTO wanted_module VALUES (?)", [(name,) for name in sorted(wanted)])
        rows = self.graph.rows(
            """SELECT DISTINCT f.key, f.path, m.name, m.source, s.name FROM wanted_module w JOIN depends d ON d.module = w.name JOIN file f ON f.key = d.file
               JOIN module m ON m.file = f.key JOIN node s ON s.key = f.source ORDER BY f.key"""
        )
        return [(key, Module(name, source, key, ""), path) for key, path, name, source, _ in rows if key not in known]

    def relate(self, writer: Writer, modules: Modules, sweep: Sweep, touched: dict[int, tuple[Module, str]], facts: dict[int, bytes]) -> None:
        relator = Relator(Resolver(modules))
        db = self.graph.db
        for done, (file, (module, path)) in enumerate(touched.items(), 1):
            sweep.watch(file)
            clear_file(db, file)
            packed = facts.pop(file, None) or self.graph.value("SELECT facts FROM file WHERE key = ?", file)
            if packed:
                self.relate_file(writer, relator, sweep, file, module, path, unpack(packed))
            self.say(f"resolving {self.source.name}", done, len(touched))

    def relate_file(self, writer: Writer, relator: Relator, sweep: Sweep, file: int, module: Module, path: str, facts: dict[str, Any]) -> None:
        related = relator.relate(facts, module, path)
        writer.put_externals(related)
        file_id = self.graph_file_id(file)
        ids = [module.symbol_id(qual) for qual in facts["quals"]]
        relations = [*defines(facts, module, file_id), *writer.put_knobs(facts, module, module.source, file), *related.relations]
        writer.flush()
        relations += writer.put_launches(related.launches, ids, module, module.source, file)
        sweep.keep(ids)
        sweep.keep(relation.dst for relation in relations if relation.dst.startswith(("knob:", "kernel:")))
        self.graph.db.executemany("INSERT INTO depends(module, file) VALUES (?, ?)", [(name, file) for name in sorted(related.consulted)])
        writer.put_relations(relations, file)
        self.graph.db.execute("UPDATE node SET data = json_set(data, '$.calls', ?, '$.unresolved', ?) WHERE key = ?", (related.calls, related.unresolved, file))

    def graph_file_id(self, file: int) -> str:
        return str(self.graph.value("SELECT id FROM node WHERE key = ?", file))

    def counts(self, source: int, skipped: list[Skipped]) -> dict[str, Any]:
        """What `sources` shows without counting again."""
        graph = self.graph
        calls, unresolved = graph.rows(
            """SELECT coalesce(sum(json_extract(n.data, '$.calls')), 0), coalesce(sum(json_extract(n.data, '$.unresolved')), 0)
               FROM file f JOIN node n ON n.key = f.key WHERE f.source = ?""",
            source,
        )[0]
        return {
            "facts_version": FACTS_VERSION,
            "revision": self.source.revision,
            "symbols": graph.value("SELECT count(*) FROM node WHERE source = ? AND kind = 'symbol'", source),
            "kernels": graph.value("SELECT count(*) FROM node WHERE source = ? AND kind = 'kernel'", source),
            "edges": graph.value("SELECT count(*) FROM file f JOIN edge e ON e.file = f.key WHERE f.source = ?", source),
            "calls": calls,
            "unresolved": unresolved,
            "skipped": [[s.path, s.reason] for s in skipped],
        }

    def report(self, plan: Plan, problems: list[Skipped], again: int, data: dict[str, Any]) -> IngestReport:
        partial = {c.path for c in plan.files if c.status == "partial"}
        return IngestReport(
            name=self.source.name, locator=self.source.locator, root=str(self.source.root), revision=plan.revision(), files=len(plan.files),
            parsed=len(plan.read), added=plan.added, changed=len(plan.read) - plan.added, unchanged=len(plan.files) - len(plan.read), moved=plan.moved(),
            deleted=len(plan.deleted), resolved_again=again, symbols=data["symbols"], edges=data["edges"], kernels=data["kernels"],
            unresolved=data["unresolved"], bytes=sum(c.bytes for c in plan.files), seconds=time.perf_counter() - self.started,
            skipped=sum(p.path not in partial for p in problems), problems=tuple(problems),
        )  # fmt: skip


def load_modules(graph: Graph) -> Modules:
    """Names of all ingested modules in order of ingestion; surfaces are read when somebody looks."""
    modules = Modules(lambda file: graph.value("SELECT surface FROM module WHERE file = ?", file))
    names = dict(graph.rows("SELECT key, name FROM node WHERE kind = 'source'"))
    for file, source, name in graph.rows("SELECT file, source, name FROM module ORDER BY source, file"):
        suffix = f"~{names[source]}" if modules.owned_elsewhere(name, source) else ""
        modules.add(Module(name, source, file, suffix))
    return modules


@contextmanager
def quiet_collector() -> Iterator[None]:
    """No cyclic garbage collection meanwhile: hundreds of thousands of live tuples would be walked again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
