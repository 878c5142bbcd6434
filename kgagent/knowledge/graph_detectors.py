"""Detectors over the graph itself: symbols by resolved name with their callers, knobs, flags, and HLO ops.

Names are compared after resolution, so `from … import make_splash_mha as f; f(…)` counts as a call of what it is.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kgagent.graph import Graph
from kgagent.knowledge.detectors import hlo_pattern, symbol_regex
from kgagent.knowledge.records import Concept, Detector
from kgagent.knowledge.scan import Match

_CALLS = "('calls', 'uses', 'wraps')"


@dataclass(frozen=True, slots=True)
class _Glob:
    regex: re.Pattern[str]
    needle: str
    concept: str
    detector: Detector


@dataclass(slots=True)
class _Globs:
    """Symbol globs by their last part where that is a plain name, else by a string any match must hold."""

    by_tail: dict[str, list[_Glob]] = field(default_factory=lambda: defaultdict(list))
    others: list[_Glob] = field(default_factory=list)

    def add(self, glob: str, concept: str, detector: Detector) -> None:
        tail = glob.rsplit(".", 1)[-1]
        pieces = [piece for piece in re.split(r"[*?]+", glob) if piece]
        entry = _Glob(symbol_regex(glob), max(pieces, key=len), concept, detector)
        if re.fullmatch(r"\w+", tail):
            self.by_tail[tail].append(entry)
        else:
            self.others.append(entry)

    def matching(self, dotted: str) -> Iterator[_Glob]:
        for glob in self.by_tail.get(dotted.rsplit(".", 1)[-1], ()):
            if glob.regex.match(dotted):
                yield glob
        for glob in self.others:
            if glob.needle in dotted and glob.regex.match(dotted):
                yield glob


def graph_matches(graph: Graph, concepts: Sequence[Concept]) -> Iterator[tuple[Match, int | None]]:
    """Matches with the file each stands in, in a fixed order."""
    yield from _symbols(graph, concepts)
    yield from _named(graph, concepts, "knob", "parameter")
    yield from _named(graph, concepts, "flag", "flag")
    yield from _ops(graph, concepts)


def _of_kind(concepts: Iterable[Concept], kind: str) -> Iterator[tuple[Concept, Detector]]:
    for concept in concepts:
        for detector in concept.detectors:
            if detector.kind == kind:
                yield concept, detector


def _symbols(graph: Graph, concepts: Sequence[Concept]) -> Iterator[tuple[Match, int | None]]:
    """Definitions of what a glob names, and every call or use of it."""
    globs = _Globs()
    wanted = tuple(_of_kind(concepts, "symbol"))
    if not wanted:
        return
    for concept, detector in wanted:
        for pattern in detector.patterns:
            globs.add(pattern, concept.id, detector)
    named: dict[int, list[tuple[_Glob, str]]] = {}
    found: list[tuple[Match, int | None]] = []
    for key, id_, file, line in graph.rows("SELECT key, id, file, line_start FROM node WHERE kind = 'symbol' ORDER BY id"):
        dotted = id_.removeprefix("sym:").split("~", 1)[0]
        hits = list(globs.matching(dotted))
        if hits:
            named[key] = [(glob, dotted) for glob in hits]
        if line is not None:
            found.extend((_symbol_match(key, glob, line, f"defines {dotted}"), file) for glob in hits)
    for src, dst, file, line in _uses(graph, list(named)):
        found.extend((_symbol_match(src, glob, line, f"uses {dotted}"), file) for glob, dotted in named[dst])
    found.sort(key=lambda pair: (pair[0].concept, pair[0].owner, pair[0].line, pair[0].name, pair[0].text))
    yield from _first_per_symbol(found)


def _symbol_match(owner: int, glob: _Glob, line: int, text: str) -> Match:
    return Match(owner, glob.concept, "symbol", glob.detector.name, line, text, 1)


def _first_per_symbol(found: Iterable[tuple[Match, int | None]]) -> Iterator[tuple[Match, int | None]]:
    """One match per (symbol, concept, detector, what it names): the first line says enough."""
    seen: set[tuple[int, str, str, str]] = set()
    for match, file in found:
        place = (match.owner, match.concept, match.name, match.text)
        if place not in seen:
            seen.add(place)
            yield match, file


def _uses(graph: Graph, keys: Sequence[int]) -> Iterator[tuple[int, int, int | None, int]]:
    """(user, used, file, line) of calls, uses and wraps of the given symbols by symbols."""
    for at in range(0, len(keys), 500):
        part = keys[at : at + 500]
        yield from graph.rows(
            f"""SELECT e.src, e.dst, coalesce(e.file, a.file), CASE WHEN e.line > 0 THEN e.line ELSE coalesce(a.line_start, 0) END
                FROM edge e JOIN node a ON a.key = e.src
                WHERE e.dst IN ({",".join("?" * len(part))}) AND e.type IN {_CALLS} AND a.kind = 'symbol'""",
            *part,
        )


def _named(graph: Graph, concepts: Sequence[Concept], node_kind: str, detector_kind: str) -> Iterator[tuple[Match, int | None]]:
    """Nodes of a kind whose own name a detector lists: knobs by parameter detectors, flags by flag detectors."""
    exact: dict[str, list[tuple[str, Detector]]] = defaultdict(list)
    globs: list[tuple[str, str, Detector]] = []
    for concept, detector in _of_kind(concepts, detector_kind):
        for pattern in detector.patterns:
            if "*" in pattern:
                globs.append((pattern, concept.id, detector))
            else:
                exact[pattern].append((concept.id, detector))
    for key, name, file, line in graph.rows("SELECT key, name, file, line_start FROM node WHERE kind = ? ORDER BY id", node_kind):
        plain = name.rsplit(".", 1)[-1].lstrip("-")
        hits = [*exact.get(plain, ()), *((concept, detector) for pattern, concept, detector in globs if fnmatch.fnmatchcase(plain, pattern))]
        for concept_id, detector in hits:
            yield Match(key, concept_id, detector_kind, detector.name, line or 0, plain, 1), file


def _ops(graph: Graph, concepts: Sequence[Concept]) -> Iterator[tuple[Match, int | None]]:
    """HLO instructions of recorded compiles."""
    entries = [(concept, detector, hlo_pattern(detector)) for concept, detector in _of_kind(concepts, "hlo")]
    if not entries:
        return
    for key, text in graph.rows("SELECT key, data FROM node WHERE kind = 'op' AND data IS NOT NULL ORDER BY id"):
        data = json.loads(text)
        opcode, kernel = str(data.get("opcode") or ""), str(data.get("kernel_name") or "")
        shape, target = str(data.get("shape") or ""), str(data.get("target") or data.get("custom_call_target") or "")
        for concept, detector, pattern in entries:
            if pattern.matches(opcode, kernel, shape, target):
                said = " ".join(part for part in (opcode, kernel or target, shape) if part)
                yield Match(key, concept.id, "hlo", detector.name, 0, said, 1), None
