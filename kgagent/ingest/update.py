"""The rows of one source brought up to date inside an open transaction, and whatever else that changes in the graph."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from kgagent.errors import IngestError
from kgagent.graph import Graph
from kgagent.ingest.claims import join_catalogues
from kgagent.ingest.compare import Change, Plan
from kgagent.ingest.copies import tie_copies
from kgagent.ingest.modules import Module, Modules, unpack
from kgagent.ingest.records import IngestReport, Skipped
from kgagent.ingest.relate import Related, Relation, Relator, defines
from kgagent.ingest.resolve import Resolver
from kgagent.ingest.shapes import FACTS_VERSION, FAULTS, Parsed
from kgagent.ingest.sweep import Sweep
from kgagent.ingest.write import Writer, clear_file, knob_id

UNRESOLVED_FILE = "its references are not resolved: "


class Update:
    """One source's turn: files as they are parsed, then the edges of every file whose names may mean something else now."""

    def __init__(self, graph: Graph, plan: Plan, skipped: list[Skipped], say: Callable[[str, int, int], None]) -> None:
        self.graph, self.plan, self.source, self.say = graph, plan, plan.source, say
        self.passed_over = skipped
        self.started = time.perf_counter()
        self.resolved_again = 0
        self.key = 0  # of the source's node, once that is written
        self.data: dict[str, Any] = plan.data
        self.moved: set[str] = set()  # dotted names of modules that are new, gone, or look different
        self.touched: dict[int, tuple[Module, str]] = {}  # files to resolve: key → module, path
        self.facts: dict[int, bytes] = {}
        self.fresh: set[int] = set()  # files the graph didn't know: nothing to clear

    @property
    def skipped(self) -> list[Skipped]:
        """Everything not read: passed over before, or unreadable, now or at an earlier ingest."""
        return [*self.passed_over, *(Skipped(change.path, change.reason) for change in self.plan.files if change.status == "skipped")]

    @property
    def needless(self) -> bool:
        """Whether the graph already says all there is to say."""
        same = self.data.get("revision") == self.source.revision and self.data.get("skipped") == [[s.path, s.reason] for s in self.skipped]
        return self.plan.nothing_to_do and same

    def run(self, results: Iterable[Parsed]) -> None:
        graph, plan = self.graph, self.plan
        self.writer = Writer(graph, files=len(plan.read))
        self.sweep = Sweep(graph)
        self.modules = load_modules(graph)
        self.key = self.put_source()
        for change in plan.deleted:
            self.modules.remove(change.was_module, change.key)
            self.moved.add(change.was_module)
        read_something = len(plan.read) < len(plan.files)
        for done, result in enumerate(results, 1):
            self.put_file(plan.read[result.number], result)
            read_something = read_something or result.status != "skipped"
            self.say(f"reading {self.source.name}", done, len(plan.read))
        if not read_something:
            first = self.skipped[0] if self.skipped else "it is empty"
            raise IngestError(f"nothing in {self.source.locator} could be read: {first}", where=str(self.source.root), hint="name a folder that holds Python")
        self.add_dependents()
        if len(self.touched) > len(plan.read) or plan.added < len(plan.read) or plan.deleted:
            self.writer.build_indexes()  # clearing looks edges up by file
        gone = [change.key for change in plan.deleted if change.key is not None]
        for key in gone:
            self.sweep.watch(key)
            clear_file(graph.db, key)
        self.relate()
        self.writer.finish()
        self.sweep.run(self.writer, gone)
        join_catalogues(graph)
        tie_copies(graph)
        self.data = self.counts()
        graph.execute("UPDATE source SET data = ?, revision = ? WHERE key = ?", json.dumps(self.data), plan.revision(), self.key)

    def remove(self) -> None:
        """Take all of the source's files out; its own row is left to the caller."""
        self.writer = Writer(self.graph, files=0)
        self.sweep = Sweep(self.graph)
        self.modules = load_modules(self.graph)
        self.take_out()

    def take_out(self) -> None:
        """Deleted files go, dependents are resolved again, what vanished is swept."""
        gone = [change.key for change in self.plan.deleted if change.key is not None]
        for change in self.plan.deleted:
            self.modules.remove(change.was_module, change.key)
            self.moved.add(change.was_module)
        self.add_dependents()
        for key in gone:
            self.sweep.watch(key)
            clear_file(self.graph.db, key)
        self.relate()
        self.writer.finish()
        self.sweep.run(self.writer, gone)
        join_catalogues(self.graph)
        tie_copies(self.graph)

    # what was read

    def put_source(self) -> int:
        key = self.writer.put(f"src:{self.source.name}", "source", self.source.name, data=json.dumps({"locator": self.source.locator}))
        self.writer.flush()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.graph.execute(
            """INSERT INTO source(key, locator, root, revision, ingested_at) VALUES (?, ?, ?, ?, ?)
               ON CONFLICT(key) DO UPDATE SET root = excluded.root, revision = excluded.revision, ingested_at = excluded.ingested_at""",
            key, self.source.locator, str(self.source.root), self.source.revision, now,
        )  # fmt: skip
        return key

    def put_file(self, change: Change, result: Parsed) -> None:
        """A file's node, row, module and symbols; its edges come when every module is known."""
        db = self.graph.db
        change.sha, change.bytes, change.status, change.reason = result.sha, result.size, result.status, result.reason
        name = change.path.rsplit("/", 1)[-1]
        file = self.writer.put(f"file:{self.source.name}/{change.path}", "file", name, source=self.key)
        self.writer.flush()
        db.execute(
            """INSERT INTO file(key, source, path, sha, bytes, mtime_ns, status, reason, facts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
               ON CONFLICT(key) DO UPDATE SET sha = excluded.sha, bytes = excluded.bytes, mtime_ns = excluded.mtime_ns, status = excluded.status,
                 reason = excluded.reason, facts = excluded.facts""",
            (file, self.key, change.path, result.sha, result.size, change.mtime_ns, result.status, result.reason, result.facts or None),
        )
        before = None
        if change.key is not None:
            self.sweep.watch(file)
            before = self.graph.value("SELECT surface FROM module WHERE file = ?", file)
            self.modules.remove(change.was_module, file)
        else:
            self.fresh.add(file)
        if result.status == "skipped":
            self.moved |= {change.module, change.was_module or change.module}
            db.execute("DELETE FROM module WHERE file = ?", (file,))
            self.touched[file] = (Module(change.module, self.key, file, ""), change.path)
            return
        if not change.module:
            document = Module(f"{self.source.name}/{change.path}", self.key, file, "", document=True)
            self.touched[file] = (document, change.path)
            self.facts[file] = result.facts
            self.writer.put_symbols(result.symbols, document, self.key, file)
            self.sweep.keep(document.symbol_id(symbol.qual) for symbol in result.symbols)
            return
        suffix = f"~{self.source.name}" if self.modules.owned_elsewhere(change.module, self.key) else ""
        module = Module(change.module, self.key, file, suffix, packed=result.surface)
        self.modules.add(module)
        self.touched[file] = (module, change.path)
        self.facts[file] = result.facts
        self.writer.put_symbols(result.symbols, module, self.key, file)
        self.sweep.keep(module.symbol_id(symbol.qual) for symbol in result.symbols)
        self.sweep.keep(self.writer.put_knobs(result.tunables, module, self.key, file))
        if before != result.surface or change.was_module != change.module:
            self.moved |= {change.module, change.was_module or change.module}
        db.execute("INSERT OR REPLACE INTO module(file, source, name, surface) VALUES (?, ?, ?, ?)", (file, self.key, change.module, result.surface))

    # what it means

    def add_dependents(self) -> None:
        """Files read before whose lookups went through a module that moved, or might now end in a new one."""
        wanted = {name for name in self.moved if name}
        for name in self.moved:
            parts = name.split(".")
            wanted.update(".".join(parts[:length]) for length in range(1, len(parts)))
        db = self.graph.db
        db.execute("CREATE TEMP TABLE IF NOT EXISTS wanted_module(name TEXT PRIMARY KEY)")
        db.execute("DELETE FROM wanted_module")
        db.executemany("INSERT INTO wanted_module VALUES (?)", [(name,) for name in sorted(wanted)])
        rows = self.graph.rows(
            """SELECT DISTINCT f.key, f.path, m.name, m.source FROM wanted_module w JOIN depends d ON d.module = w.name JOIN file f ON f.key = d.file
               JOIN module m ON m.file = f.key ORDER BY f.key"""
        )
        deleted = {change.key for change in self.plan.deleted}
        for key, path, name, source in rows:
            if key not in self.touched and key not in deleted:
                module = self.modules.get(name, source)
                if module is not None:
                    self.touched[key] = (module, path)
                    self.resolved_again += 1

    def relate(self) -> None:
        """Edges and kernels of every touched file, in the order of their keys."""
        relator = Relator(Resolver(self.modules))
        for done, (file, (module, path)) in enumerate(sorted(self.touched.items(), key=lambda item: item[0]), 1):
            if file not in self.fresh:
                self.sweep.watch(file)
                clear_file(self.graph.db, file)
            packed = self.facts.pop(file, None) or self.graph.value("SELECT facts FROM file WHERE key = ?", file)
            if packed:
                self.relate_or_tell(relator, file, module, path, packed)
            self.say(f"resolving {self.source.name}", done, len(self.touched))

    def relate_or_tell(self, relator: Relator, file: int, module: Module, path: str, packed: bytes) -> None:
        """One file's edges; a fault in working them out leaves its symbols without edges, and its row says so."""
        try:
            facts = unpack(packed)
            related = relator.relate(facts, module, path)
        except FAULTS as error:
            self.tell(file, "partial", f"{UNRESOLVED_FILE}{type(error).__name__}: {error}")
            ids = (id_ for (id_,) in self.graph.rows("SELECT id FROM node WHERE file = ? AND made_by = 'ingest' AND kind IN ('symbol', 'knob')", file))
            self.sweep.keep(ids)
            return
        if file not in self.fresh and str(self.graph.value("SELECT reason FROM file WHERE key = ?", file)).startswith(UNRESOLVED_FILE):
            self.tell(file, "ok", "")
        lost = self.relate_file(related, file, module, facts)
        if lost:
            self.tell(file, "partial", f"{UNRESOLVED_FILE}{len(lost)} edges lead nowhere, the first: {lost[0].src} {lost[0].type} {lost[0].dst}")

    def tell(self, file: int, status: str, reason: str) -> None:
        """Note on a file, of this source or another, how far it was read."""
        self.graph.execute("UPDATE file SET status = ?, reason = ? WHERE key = ?", status, reason, file)
        path = self.graph.value("SELECT path FROM file WHERE key = ? AND source = ?", file, self.key)
        for change in self.plan.files:
            if change.path == path:
                change.status, change.reason = status, reason

    def relate_file(self, related: Related, file: int, module: Module, facts: dict[str, Any]) -> list[Relation]:
        """Writes what one file's facts mean; returns the edges that could not be written."""
        db, writer = self.graph.db, self.writer
        writer.put_flags(facts["flags"], [module.symbol_id(qual) for qual in facts["quals"]], file)
        for id_, dotted in related.externals.items():
            writer.put_external(id_, dotted)
        ids = [module.symbol_id(qual) for qual in facts["quals"]]
        file_id = str(self.graph.value("SELECT id FROM node WHERE key = ?", file))
        knobs = [(qual, knob_id(module, qual, name), line) for qual, rows in facts["tunables"].items() for name, line, _ in rows]
        relations = [*defines(facts, module, file_id), *related.relations]
        relations += [Relation(module.symbol_id(qual), "defines", knob, line, "exact") for qual, knob, line in knobs]
        writer.flush()
        relations += writer.put_launches(related.launches, ids, module, module.source, file)
        self.sweep.keep(ids)
        self.sweep.keep(relation.dst for relation in relations if relation.dst.startswith(("knob:", "kernel:")))
        db.executemany("INSERT INTO depends(module, file) VALUES (?, ?)", [(name, file) for name in sorted(related.consulted)])
        lost = writer.put_relations(relations, file)
        self.put_frameworks(related.frameworks, ids, file)
        said = {"module": module.name, "calls": related.calls, "unresolved": related.unresolved}
        if module.document:
            said = {"sections": len(ids), "catalogue": len(facts["catalogue"]), "tuning": facts["tuning"]}
        db.execute("UPDATE node SET data = ? WHERE key = ?", (json.dumps(said), file))
        return lost

    def put_frameworks(self, frameworks: dict[int, str], ids: list[str], file: int) -> None:
        """Which classes are Flax modules; an earlier answer is taken back, since a base may have changed elsewhere."""
        db = self.graph.db
        if file not in self.fresh:
            db.execute("UPDATE node SET data = json_remove(data, '$.framework') WHERE file = ? AND json_extract(data, '$.framework') IS NOT NULL", (file,))
        rows = [(framework, self.writer.known(ids[index])) for index, framework in frameworks.items()]
        db.executemany("UPDATE node SET data = json_set(data, '$.framework', ?) WHERE key = ?", rows)

    # what to say

    def counts(self) -> dict[str, Any]:
        """What `sources` shows without counting again."""
        graph, key = self.graph, self.key
        calls, unresolved = graph.rows(
            """SELECT coalesce(sum(json_extract(n.data, '$.calls')), 0), coalesce(sum(json_extract(n.data, '$.unresolved')), 0)
               FROM file f JOIN node n ON n.key = f.key WHERE f.source = ?""",
            key,
        )[0]
        return {
            "facts_version": FACTS_VERSION,
            "revision": self.source.revision,
            "symbols": graph.value("SELECT count(*) FROM node WHERE source = ? AND kind = 'symbol'", key),
            "kernels": graph.value("SELECT count(*) FROM node WHERE source = ? AND kind = 'kernel'", key),
            "edges": graph.value("SELECT count(*) FROM file f JOIN edge e ON e.file = f.key WHERE f.source = ?", key),
            "calls": calls,
            "unresolved": unresolved,
            "skipped": [[s.path, s.reason] for s in self.skipped],
        }

    def report(self) -> IngestReport:
        plan, data = self.plan, self.data
        partial = [Skipped(change.path, change.reason) for change in plan.files if change.status == "partial"]
        return IngestReport(
            name=self.source.name, locator=self.source.locator, root=str(self.source.root), revision=plan.revision(), files=len(plan.files),
            parsed=len(plan.read), added=plan.added, changed=len(plan.read) - plan.added, unchanged=len(plan.files) - len(plan.read), moved=plan.moved(),
            deleted=len(plan.deleted), resolved_again=self.resolved_again, symbols=data["symbols"], edges=data["edges"], kernels=data["kernels"],
            unresolved=data["unresolved"], bytes=sum(change.bytes for change in plan.files), seconds=time.perf_counter() - self.started,
            skipped=len(self.skipped), problems=(*self.skipped, *partial),
        )  # fmt: skip


def load_modules(graph: Graph) -> Modules:
    """Names of all ingested modules in order of ingestion; surfaces are read when somebody looks."""
    modules = Modules(lambda file: graph.value("SELECT surface FROM module WHERE file = ?", file))
    names = dict(graph.rows("SELECT key, name FROM node WHERE kind = 'source'"))
    for file, source, name in graph.rows("SELECT file, source, name FROM module ORDER BY source, file"):
        suffix = f"~{names[source]}" if modules.owned_elsewhere(name, source) else ""
        modules.add(Module(name, source, file, suffix))
    return modules
