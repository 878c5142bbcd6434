"""Concept pages into the graph: concepts, levers, claims and their relations, each with its page and line.

Rows are compared before they are written, so a second run changes nothing, and what left a page leaves the graph.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kgagent.graph import Graph, NewEdge, NewNode
from kgagent.graph.words import split_identifier
from kgagent.knowledge.pages import page_files, read_concepts
from kgagent.knowledge.records import Citation, Concept, ConceptReport, Fact, Loaded, Problem
from kgagent.objects import sha256_hex

MADE_BY = "knowledge"
SOURCE = "src:concepts"
LOCATOR = "concepts"
# What the mirror writes into a page is not its author's: it must not make the page look edited.
GENERATED = re.compile(rb"^<!-- kg:begin .*?^<!-- kg:end [^\n]*$", re.MULTILINE | re.DOTALL)
_EDGES_OF_PAGES = "made_by = 'knowledge' AND how <> 'detector'"


@dataclass(frozen=True, slots=True)
class _Changes:
    """Rows written by one step."""

    added: int = 0
    updated: int = 0
    removed: int = 0

    def __add__(self, other: _Changes) -> _Changes:
        return _Changes(self.added + other.added, self.updated + other.updated, self.removed + other.removed)


def sync_concepts(graph: Graph) -> ConceptReport:
    """Make the graph say what the workspace's concept pages say; broken pages are reported and left out."""
    folder = graph.workspace.concepts
    loaded = read_concepts(folder)
    paths = page_files(folder)
    with graph.transaction():
        _put_source(graph, folder, paths)
        files = _put_files(graph, paths, loaded)
        nodes = [node for concept in loaded.concepts for node in _nodes(concept)]
        changes = _sync_nodes(graph, nodes) + _sync_claims(graph, loaded.concepts)
        edges = list(_edges(graph, loaded.concepts))
        changes += _sync_edges(graph, edges)
        _drop_files(graph, files)
    missing = [_missing_link(concept, name, line) for concept in loaded.concepts for name, line in concept.links if f"concept:{name}" not in _ids(loaded)]
    return ConceptReport(
        concepts=len(loaded.concepts),
        levers=sum(len(concept.levers) for concept in loaded.concepts),
        claims=sum(len(concept.facts) for concept in loaded.concepts),
        relations=sum(len(concept.relations) for concept in loaded.concepts),
        added=changes.added,
        updated=changes.updated,
        removed=changes.removed,
        problems=(*loaded.problems, *missing),
    )


def claim_id(concept: Concept, fact: Fact) -> str:
    """Stable while the sentence and its sources are, wherever on the page it stands."""
    return f"claim:{concept.slug}/{sha256_hex(fact.text + '|' + cited(fact))[:8]}"


def cited(fact: Fact) -> str:
    """All sources of a fact as one text."""
    return "; ".join(citation.text for citation in fact.citations)


def _ids(loaded: Loaded) -> set[str]:
    return {concept.id for concept in loaded.concepts}


def _missing_link(concept: Concept, name: str, line: int) -> Problem:
    return Problem(f"[[{name}]] leads to no concept page", f"{concept.path}:{line}", "write that page, or correct the name")


def _file_id(path: Path) -> str:
    return f"file:concepts/{path.name}"


def _put_source(graph: Graph, folder: Path, paths: Sequence[Path]) -> None:
    """The folder as a source, so that its pages have paths; the time changes only when what people wrote does."""
    revision = sha256_hex("".join(path.name + sha256_hex(GENERATED.sub(b"", path.read_bytes()).rstrip()) for path in paths))[:12]
    have = graph.rows("SELECT s.root, s.revision FROM source s JOIN node n ON n.key = s.key WHERE n.id = ?", SOURCE)
    if have == [(str(folder), revision)]:
        return
    if not have:
        graph.put_nodes([NewNode(SOURCE, "source", "concept pages", MADE_BY, doc="Concepts, levers and facts that people wrote")])
    now = datetime.now(UTC).isoformat(timespec="seconds")
    graph.execute(
        """INSERT INTO source(key, locator, root, revision, ingested_at, data) VALUES ((SELECT key FROM node WHERE id = ?), ?, ?, ?, ?, '{"kind": "concepts"}')
           ON CONFLICT(key) DO UPDATE SET root = excluded.root, revision = excluded.revision, ingested_at = excluded.ingested_at""",
        SOURCE, LOCATOR, str(folder), revision, now,
    )  # fmt: skip


def _put_files(graph: Graph, paths: Sequence[Path], loaded: Loaded) -> set[str]:
    """A file row a page; a page that couldn't be read is 'skipped', with the reason."""
    read = {concept.path for concept in loaded.concepts}
    reasons = {problem.where.split(".md", 1)[0] + ".md": problem.what for problem in loaded.problems}
    source = graph.key(SOURCE)
    have = {id_: (sha, status, reason) for id_, sha, status, reason in graph.rows(
        "SELECT n.id, f.sha, f.status, f.reason FROM file f JOIN node n ON n.key = f.key WHERE f.source = ?", source)}  # fmt: skip
    for path in paths:
        data = path.read_bytes()
        status, reason = ("ok", "") if path in read else ("skipped", reasons.get(str(path), "unreadable"))
        row = (sha256_hex(data), status, reason)
        if have.get(_file_id(path)) == row:
            continue
        graph.objects.put(data, durable=False)
        graph.put_nodes([NewNode(_file_id(path), "file", path.name, MADE_BY, source=SOURCE)])
        graph.execute(
            """INSERT INTO file(key, source, path, sha, bytes, mtime_ns, status, reason) VALUES ((SELECT key FROM node WHERE id = ?), ?, ?, ?, ?, ?, ?, ?)
               ON CONFLICT(key) DO UPDATE SET sha = excluded.sha, bytes = excluded.bytes, mtime_ns = excluded.mtime_ns,
                 status = excluded.status, reason = excluded.reason""",
            _file_id(path), source, path.name, row[0], len(data), path.stat().st_mtime_ns, status, reason,
        )  # fmt: skip
    return {_file_id(path) for path in paths}


def _drop_files(graph: Graph, keep: set[str]) -> None:
    """Files of pages that are gone; their concepts went before them."""
    for (id_,) in graph.rows("SELECT n.id FROM file f JOIN node n ON n.key = f.key WHERE f.source = ?", graph.key(SOURCE)):
        if id_ not in keep:
            graph.execute("DELETE FROM node WHERE id = ?", id_)


def _nodes(concept: Concept) -> Iterable[NewNode]:
    file = _file_id(concept.path)
    words = split_identifier(" ".join([concept.title, concept.slug, *concept.aliases]))
    data: dict[str, Any] = {
        "aliases": list(concept.aliases), "tags": list(concept.tags), "summary": concept.summary, "mechanism": concept.summary or concept.mechanism,
        "explanation": concept.mechanism, "applies": concept.applies, "not_applies": concept.not_applies,
        "detectors": [f"{detector.label}: {', '.join(detector.patterns)}" for detector in concept.detectors],
    }  # fmt: skip
    yield NewNode(concept.id, "concept", concept.title, MADE_BY, concept.definition, words, SOURCE, file, 1, concept.lines, data)
    for lever in concept.levers:
        name = lever.slug.replace("-", " ")
        yield NewNode(lever.id, "lever", name, MADE_BY, lever.text, None, SOURCE, file, lever.line, lever.line, {"concept": concept.id})
    for fact in concept.facts:
        name = fact.text if len(fact.text) <= 96 else fact.text[:95].rsplit(" ", 1)[0] + " …"
        data = {"concept": concept.id, "sources": [citation.text for citation in fact.citations]}
        yield NewNode(claim_id(concept, fact), "claim", name, MADE_BY, fact.text, None, SOURCE, file, fact.line, fact.line, data)


def _sync_nodes(graph: Graph, nodes: Sequence[NewNode]) -> _Changes:
    rows = graph.rows(
        """SELECT n.id, n.name, n.doc, n.words, f.id, n.line_start, n.line_end, n.data FROM node n LEFT JOIN node f ON f.key = n.file
           WHERE n.source = ? AND n.kind IN ('concept', 'lever', 'claim')""",
        graph.key(SOURCE),
    )
    have = {row[0]: row[1:] for row in rows}
    changed = [node for node in nodes if have.get(node.id) != _row(node)]
    gone = have.keys() - {node.id for node in nodes}
    for id_ in sorted(gone):
        graph.execute("DELETE FROM node WHERE id = ?", id_)
    graph.put_nodes(changed)
    added = sum(node.id not in have for node in changed)
    return _Changes(added, len(changed) - added, len(gone))


def _row(node: NewNode) -> tuple[Any, ...]:
    words = split_identifier(node.name) if node.words is None else node.words
    return node.name, node.doc, words, node.file, node.line_start, node.line_end, json.dumps(node.data, sort_keys=True)


def _sync_claims(graph: Graph, concepts: Sequence[Concept]) -> _Changes:
    """The typed rows beside the claim nodes; claims of removed nodes went with them."""
    columns = "text, op_point, value, unit, status, cited"
    rows = graph.rows(f"SELECT n.id, {columns} FROM claim c JOIN node n ON n.key = c.key WHERE n.source = ?", graph.key(SOURCE))
    have = {row[0]: row[1:] for row in rows}
    for concept in concepts:
        for fact in concept.facts:
            id_ = claim_id(concept, fact)
            row = (fact.text, fact.at, fact.value, fact.unit, "measured" if fact.measured else "sourced", cited(fact))
            if have.get(id_) != row:
                graph.execute(f"INSERT OR REPLACE INTO claim(key, {columns}) VALUES ((SELECT key FROM node WHERE id = ?), ?, ?, ?, ?, ?, ?)", id_, *row)
    return _Changes()


def _edges(graph: Graph, concepts: Sequence[Concept]) -> Iterable[NewEdge]:
    known = {concept.slug for concept in concepts}
    for concept in concepts:
        file = _file_id(concept.path)
        for lever in concept.levers:
            yield NewEdge(concept.id, "enables", lever.id, MADE_BY, "human", file, lever.line, {"role": "lever of the concept"})
        for relation in concept.relations:
            yield NewEdge(relation.src, relation.type, relation.dst, MADE_BY, "human", file, relation.line, {"scope": relation.scope})
        for name, line in concept.links:
            if name in known and name != concept.slug:
                yield NewEdge(concept.id, "mentions", f"concept:{name}", MADE_BY, "human", file, line)
        for fact in concept.facts:
            id_ = claim_id(concept, fact)
            yield NewEdge(id_, "supports", concept.id, MADE_BY, "human", file, fact.line)
            for citation in fact.citations:
                found = _symbol_of(graph, citation)
                if found:
                    yield NewEdge(id_, "based_on", found[0], MADE_BY, found[1], file, fact.line, {"cited": citation.text})


def _symbol_of(graph: Graph, citation: Citation) -> tuple[str, str] | None:
    """The ingested symbol a code citation names ('exact'), or its module ('inferred'); None while it isn't ingested."""
    id_ = citation.symbol_id
    candidates = [(id_, "exact"), (id_.removesuffix(f".{citation.symbol}"), "inferred")] if id_ else []
    for candidate, how in candidates:
        if graph.value("SELECT 1 FROM node WHERE id = ? AND line_start IS NOT NULL", candidate):
            return candidate, how
    return None


def _sync_edges(graph: Graph, edges: Sequence[NewEdge]) -> _Changes:
    rows = graph.rows(
        f"""SELECT e.key, a.id, e.type, b.id, e.line, e.how, f.id, e.data FROM edge e JOIN node a ON a.key = e.src JOIN node b ON b.key = e.dst
            LEFT JOIN node f ON f.key = e.file WHERE a.source = ? AND e.{_EDGES_OF_PAGES.replace("AND how", "AND e.how")}""",
        graph.key(SOURCE),
    )
    have = {row[1:5]: (row[5:], row[0]) for row in rows}
    wanted = {(edge.src, edge.type, edge.dst, edge.line): edge for edge in edges}
    gone = [key for place, (_, key) in have.items() if place not in wanted]
    for key in gone:
        graph.execute("DELETE FROM edge WHERE key = ?", key)
    changed = []
    for place, edge in wanted.items():
        row = (edge.how, edge.file, json.dumps(edge.data, sort_keys=True) if edge.data is not None else None)
        if place not in have or have[place][0] != row:
            changed.append(edge)
    graph.put_edges(changed)
    added = sum((edge.src, edge.type, edge.dst, edge.line) not in have for edge in changed)
    return _Changes(added, len(changed) - added, len(gone))
