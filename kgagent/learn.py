"""Read sources and let what they say reach the rest of the graph: concepts, detectors, and the lines compilers named.

One function, so that every face that ingests leaves the same graph behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kgagent.errors import IngestError, UsageError
from kgagent.evidence.lines import link_lines
from kgagent.graph import Graph
from kgagent.ingest import IngestReport, ingest
from kgagent.knowledge import link, page_files, sync_concepts

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Learned:
    """What was read, how many places now point to concepts, and what is wrong with concept pages."""

    sources: tuple[IngestReport, ...]
    mentions: int
    problems: tuple[str, ...]


def learn(graph: Graph, locators: Sequence[str], *, progress: Progress | None = None) -> Learned:
    """Ingest, then link. A source that fails raises, after those that were read are linked; nothing of the failed one is stored."""
    say = progress or (lambda step, done, total: None)
    if not all(locator.strip() for locator in locators):
        raise UsageError("an empty source", hint="kgagent ingest pkg:NAME, a folder or a file; . is this folder")
    before = _stamp(graph)
    try:
        reports = ingest(graph, locators, progress=progress)
    except IngestError:
        if _stamp(graph) != before:
            connect(graph, say)
        raise
    if not any(r.parsed or r.moved or r.deleted or r.resolved_again for r in reports) and not _pages_touched(graph):
        return Learned(reports, 0, ())
    return Learned(reports, *connect(graph, say))


def _stamp(graph: Graph) -> list[tuple[object, ...]]:
    """What a finished source leaves behind; equal before and after means that none was written."""
    return graph.rows("SELECT key, revision, ingested_at FROM source ORDER BY key")


def connect(graph: Graph, say: Progress) -> tuple[int, tuple[str, ...]]:
    """Concept pages, their detectors, and compiler lines against what is ingested now; idempotent."""
    say("reading concept pages", 0, 0)
    concepts = sync_concepts(graph)
    say("linking concepts", 0, 0)
    links = link(graph)
    link_lines(graph)
    return links.mentions, tuple(dict.fromkeys(str(problem) for problem in (*concepts.problems, *links.problems)))


def _pages_touched(graph: Graph) -> bool:
    """Whether a concept page came, went or was written since it was last read; looks at times only, to stay quick."""
    known = dict(graph.rows("SELECT f.path, f.mtime_ns FROM file f JOIN node s ON s.key = f.source WHERE s.id = 'src:concepts'"))
    try:
        found = {path.name: path.stat().st_mtime_ns for path in page_files(graph.workspace.concepts)}
    except OSError:
        return True
    return known != found
