"""Sources into the graph, each in one transaction: compare, parse what changed, resolve whatever that touches, sweep.

A kill at any moment leaves the old graph; an ingest that found no Python is an error, not an empty success.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kgagent.errors import IngestError
from kgagent.graph import Graph
from kgagent.ingest.compare import Change, Plan, named_apart, plan_changes
from kgagent.ingest.documents import SUFFIXES as DOCUMENT_SUFFIXES
from kgagent.ingest.manifest import read_manifests, stored_files, write_manifest
from kgagent.ingest.parse import Task, parse
from kgagent.ingest.pool import Reader, Sized
from kgagent.ingest.records import IngestReport, Skipped
from kgagent.ingest.shapes import FAULTS, Parsed
from kgagent.ingest.sources import Source, locate
from kgagent.ingest.update import Update
from kgagent.ingest.walk import files_of

Progress = Callable[[str, int, int], None]
SUFFIXES = (".py", *DOCUMENT_SUFFIXES)


@dataclass(slots=True)
class _Job:
    """A source with its files, and the comparison made before its turn came."""

    source: Source
    files: list[Change]
    skipped: list[Skipped]
    plan: Plan


def ingest(graph: Graph, locators: Sequence[str], *, progress: Progress | None = None) -> tuple[IngestReport, ...]:
    """Read each source into the graph, in the order given; each is whole before the next begins."""
    sources = [locate(locator, graph.workspace.raw / "trees") for locator in dict.fromkeys(locators)]  # a mistyped one is told before the first is read
    jobs = []
    for source in sources:
        found, skipped = files_of(source, SUFFIXES)
        if not any(file.path.endswith(".py") for file in found) and not (found and source.root / source.folders[0] == Path(source.locator)):
            reasons = f"; {len(skipped)} passed over, the first: {skipped[0]}" if skipped else ""
            raise IngestError(f"no Python in {source.locator}{reasons}", where=str(source.root), hint="name a folder that holds .py files, or pkg:NAME")
        jobs.append(_job(graph, source, [Change.on_disk(file) for file in found], skipped))
    return _run(graph, jobs, progress)


def restore(graph: Graph, *, progress: Progress | None = None) -> tuple[IngestReport, ...]:
    """Every source again from raw/sources and raw/objects alone, as it was read then."""
    manifests = read_manifests(graph.workspace.sources)
    return _run(graph, [_job(graph, manifest.source, stored_files(manifest), list(manifest.passed_over)) for manifest in manifests], progress)


def _job(graph: Graph, source: Source, files: list[Change], skipped: list[Skipped]) -> _Job:
    return _Job(source, files, skipped, plan_changes(graph, source, files))


def _run(graph: Graph, jobs: list[_Job], progress: Progress | None) -> tuple[IngestReport, ...]:
    """Every job; one that can't be read costs itself alone and is told at the end, when the others are whole."""
    say = progress or (lambda step, done, total: None)
    reports: list[IngestReport] = []
    failed: list[IngestError] = []
    with quiet_collector(), Reader([tasks_of(graph, job.plan.read) for job in jobs]) as reader:
        for number, job in enumerate(jobs):
            try:
                reports.append(_one(graph, job, reader, number, say))
            except IngestError as error:
                failed.append(error)
            except FAULTS as error:
                told = IngestError(f"{job.source.locator} can't be read, by a fault of this program: {type(error).__name__}: {error}",
                                   where=place_of(error), hint="leave that source out, and report it with this message")  # fmt: skip
                told.__cause__ = error
                failed.append(told)
    if failed and len(jobs) > 1:
        others = f"; read: {', '.join(report.name for report in reports)}" if reports else ""
        raise IngestError(
            f"{len(failed)} of {len(jobs)} sources can't be read: {failed[0].what}{others}", where=failed[0].where, hint=failed[0].hint
        ) from failed[0]
    if failed:
        raise failed[0]
    return tuple(reports)


def place_of(error: BaseException) -> str:
    """The file and line of this program where an error came from."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""


def _one(graph: Graph, job: _Job, reader: Reader, number: int, say: Progress) -> IngestReport:
    """One source in its transaction, compared again: another process may have written since."""
    with graph.transaction():
        source = named_apart(graph, job.source)
        expected = job.plan.read
        plan = plan_changes(graph, source, job.files)
        for change in plan.touched:
            graph.execute("UPDATE file SET mtime_ns = ? WHERE key = ?", change.mtime_ns, change.key)
        skipped = [*job.skipped, *plan.duplicates]
        update = Update(graph, plan, skipped, say)
        if not update.needless:
            update.run(_matching(graph, reader.results(number), expected, plan.read))
        elif not plan.touched:
            return update.report()
        order = graph.value("SELECT count(*) FROM source WHERE key < (SELECT key FROM source WHERE locator = ?)", source.locator)
    write_manifest(graph.workspace.sources, source, plan.revision(), plan.files, skipped, order)
    return update.report()


def _matching(graph: Graph, results: Iterable[Parsed], expected: list[Change], wanted: list[Change]) -> Iterator[Parsed]:
    """What was parsed ahead, renumbered for the files now wanted; the rest is parsed here."""
    places = {(change.path, change.module): index for index, change in enumerate(wanted)}
    for result in results:
        change = expected[result.number]
        index = places.pop((change.path, change.module), None)
        if index is not None:
            yield result._replace(number=index)
    for index in places.values():
        yield parse(task_of(graph, index, wanted[index]))


def tasks_of(graph: Graph, changes: Sequence[Change]) -> list[Sized]:
    return [(task_of(graph, index, change), change.bytes) for index, change in enumerate(changes)]


def task_of(graph: Graph, index: int, change: Change) -> Task:
    return Task(index, change.path, change.disk, change.stored, change.module, change.is_package, change.submodules, str(graph.objects.folder))


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
