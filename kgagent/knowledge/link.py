"""Source to concepts: runs every detector over what was ingested and writes `mentions` edges that say why.

Deterministic and idempotent. Files whose bytes, detectors and edges are as the last run left them aren't read again;
graph detectors (symbols, knobs, flags, HLO ops) depend on other files' resolution and are always evaluated.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kgagent.graph import Graph, NewEdge
from kgagent.knowledge.graph_detectors import graph_matches
from kgagent.knowledge.pages import read_concepts
from kgagent.knowledge.records import Concept, LinkReport, Problem
from kgagent.knowledge.scan import TEXT_KINDS, Match, Span, TextDetector, scan, text_detectors
from kgagent.knowledge.sync import MADE_BY, SOURCE
from kgagent.objects import canonical_json, sha256_hex

STATE = "knowledge.link"
VERSION = 1  # raise it when matching itself changes, so that files linked by older code are read again


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an edge stands; the schema keeps one per line."""

    src: int
    concept: str
    line: int


@dataclass(frozen=True, slots=True)
class _Mention:
    """What an edge says besides its place; `labels` are the detectors in it, `textual` whether they read the file."""

    file: int | None
    data: str
    labels: tuple[str, ...]
    textual: bool

    @classmethod
    def read(cls, file: int | None, data: str) -> _Mention:
        said = json.loads(data)
        return cls(file, data, (f"{said['kind']} {said['detector']}", *said.get("also", ())), said["kind"] in TEXT_KINDS)

    @classmethod
    def of(cls, file: int | None, matches: Sequence[Match]) -> _Mention:
        first = matches[0]
        data = {"detector": first.name, "kind": first.kind, "text": first.text, "count": first.count}
        return cls(file, "", (), first.kind in TEXT_KINDS)._saying(data, [f"{match.kind} {match.name}" for match in matches])

    def beside(self, match: Match) -> _Mention:
        """The same edge, with one more detector that fired on its line."""
        label = f"{match.kind} {match.name}"
        return self if label in self.labels else self._saying(json.loads(self.data), [*self.labels, label])

    def textual_part(self) -> _Mention:
        """The edge as reading the file alone would leave it."""
        kept = [label for label in self.labels if label.split(" ", 1)[0] in TEXT_KINDS]
        return self if len(kept) == len(self.labels) else self._saying(json.loads(self.data), kept)

    def _saying(self, data: dict[str, Any], labels: Sequence[str]) -> _Mention:
        data.pop("also", None)
        if len(labels) > 1:
            data["also"] = list(labels[1:])
        return _Mention(self.file, json.dumps(data, sort_keys=True), tuple(labels), self.textual)


@dataclass(frozen=True, slots=True)
class _File:
    key: int
    id: str
    sha: str


def link(graph: Graph) -> LinkReport:
    """Make the graph's detector edges those that the concept pages' detectors find; returns what was read and changed."""
    loaded = read_concepts(graph.workspace.concepts)
    known = {id_ for (id_,) in graph.rows("SELECT id FROM node WHERE kind = 'concept'")}
    concepts = tuple(concept for concept in loaded.concepts if concept.id in known)
    unknown = [Problem(f"{c.id} isn't in the graph yet", str(c.path), "run sync_concepts first") for c in loaded.concepts if c.id not in known]
    with graph.transaction():
        files = _files(graph)
        have = _existing(graph)
        digest = _digest(concepts)
        state = _state(graph, digest)
        counts = Counter(mention.file for mention, _ in have.values() if mention.textual)
        fresh = [file for file in files if state.get(file.id) == [file.sha, counts[file.key]]]
        fresh_keys = {file.key for file in fresh}
        stale = [file for file in files if file.key not in fresh_keys]
        wanted = {
            place: mention.textual_part() for place, (mention, _) in have.items() if mention.textual and mention.file in fresh_keys and place.concept in known
        }
        wanted |= _textual(graph, stale, text_detectors(concepts))
        for match, file in graph_matches(graph, concepts):
            place = _Place(match.owner, match.concept, match.line)
            wanted[place] = wanted[place].beside(match) if place in wanted else _Mention.of(file, [match])
        added, removed = _write(graph, have, wanted)
        counts = Counter(mention.file for mention in wanted.values() if mention.textual)
        _keep_state(graph, digest, {file.id: [file.sha, counts[file.key]] for file in files})
    fired: Counter[str] = Counter()
    for place, mention in wanted.items():
        slug = place.concept.removeprefix("concept:")
        for label in mention.labels:
            fired[f"{slug}: {label}"] += 1
    ranked = tuple(sorted(fired.items(), key=lambda pair: (-pair[1], pair[0])))
    reached = len({place.concept for place in wanted})
    return LinkReport(len(files), len(stale), len(wanted), added, removed, reached, ranked, (*loaded.problems, *unknown))


def _files(graph: Graph) -> list[_File]:
    """Ingested files in a fixed order; concept pages are read for what they say, not for what they mention."""
    rows = graph.rows(
        """SELECT n.key, n.id, f.sha FROM file f JOIN node n ON n.key = f.key JOIN node s ON s.key = f.source
           WHERE f.status <> 'skipped' AND s.id <> ? ORDER BY n.id""",
        SOURCE,
    )
    return [_File(*row) for row in rows]


def _existing(graph: Graph) -> dict[_Place, tuple[_Mention, int]]:
    rows = graph.rows(
        """SELECT e.src, b.id, e.line, e.file, e.data, e.key FROM edge e JOIN node b ON b.key = e.dst
           WHERE e.type = 'mentions' AND e.how = 'detector' AND e.made_by = ? AND b.kind = 'concept'""",
        MADE_BY,
    )
    return {_Place(src, concept, line): (_Mention.read(file, data), key) for src, concept, line, file, data, key in rows}


def _digest(concepts: Iterable[Concept]) -> str:
    said = [[c.id, d.kind, d.name, *d.patterns] for c in concepts for d in c.detectors]
    return sha256_hex(canonical_json([VERSION, said]))


def _state(graph: Graph, digest: str) -> dict[str, list[Any]]:
    """What the last run left per file: [sha, edges]; nothing when the detectors have changed since."""
    text = graph.value("SELECT value FROM meta WHERE name = ?", STATE)
    state = json.loads(text) if text else {}
    files: dict[str, list[Any]] = state["files"] if state.get("detectors") == digest else {}
    return files


def _keep_state(graph: Graph, digest: str, files: dict[str, list[Any]]) -> None:
    text = canonical_json({"detectors": digest, "files": files})
    if text != graph.value("SELECT value FROM meta WHERE name = ?", STATE):
        graph.execute("INSERT INTO meta(name, value) VALUES (?, ?) ON CONFLICT(name) DO UPDATE SET value = excluded.value", STATE, text)


def _textual(graph: Graph, files: Sequence[_File], detectors: Sequence[TextDetector]) -> dict[_Place, _Mention]:
    """Mentions found by reading files; several detectors on one line share an edge."""
    if not files or not detectors:
        return {}
    wanted: dict[_Place, _Mention] = {}
    spans = _spans(graph)
    for file in files:
        if file.key not in spans:
            continue
        data = graph.objects.get(file.sha)
        together: dict[_Place, list[Match]] = defaultdict(list)
        for match in scan(data, spans[file.key], detectors):
            together[_Place(match.owner, match.concept, match.line)].append(match)
        wanted |= {place: _Mention.of(file.key, matches) for place, matches in together.items()}
    return wanted


def _spans(graph: Graph) -> dict[int, list[Span]]:
    """Symbol spans per file; modules too, so that what stands outside every function has an owner."""
    spans: dict[int, list[Span]] = defaultdict(list)
    for file, key, start, end in graph.rows(
        "SELECT file, key, line_start, line_end FROM node WHERE kind = 'symbol' AND file IS NOT NULL AND line_start IS NOT NULL"
    ):
        spans[file].append(Span(key, start, end))
    return spans


def _write(graph: Graph, have: dict[_Place, tuple[_Mention, int]], wanted: dict[_Place, _Mention]) -> tuple[int, int]:
    """Only the difference; returns edges added and removed, a changed one counting as both."""
    gone = [key for place, (mention, key) in have.items() if wanted.get(place) != mention]
    new = [(place, mention) for place, mention in wanted.items() if place not in have or have[place][0] != mention]
    for key in gone:
        graph.execute("DELETE FROM edge WHERE key = ?", key)
    if new:
        ids = dict(graph.rows("SELECT key, id FROM node WHERE kind IN ('symbol', 'file', 'knob', 'flag', 'op')"))
        graph.put_edges(
            NewEdge(
                ids[place.src],
                "mentions",
                place.concept,
                MADE_BY,
                "detector",
                ids[mention.file] if mention.file else None,
                place.line,
                json.loads(mention.data),
            )
            for place, mention in new
        )
    return len(new), len(gone)
