"""Textual detectors over one file: which fired, on which line, in which innermost symbol.

A regex runs only on texts that hold what every match must hold, looked for first among the text's distinct words, which
are a tenth of it: most (file, detector) pairs end there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kgagent.knowledge.detectors import needles, text_regexes
from kgagent.knowledge.records import Concept, Detector

SNIPPET = 160
TEXT_KINDS = ("source", "parameter", "flag", "alias")
_WORD_BYTES = bytes(byte if chr(byte).isalnum() or byte == ord("_") or byte > 127 else ord(" ") for byte in range(256))


@dataclass(frozen=True, slots=True)
class TextDetector:
    """A detector made ready: its regexes, and what a text must hold for it to fire.

    That is one of `words` whole, or all strings of one of `needles`; `stems` are the needles' longest parts without
    punctuation, which can only stand inside a word.
    """

    concept: str
    kind: str
    name: str
    regexes: tuple[re.Pattern[str], ...]
    words: frozenset[bytes]
    needles: tuple[tuple[str, ...], ...]
    stems: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Span:
    """Lines a symbol covers, both ends included."""

    key: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Match:
    """A detector's first match inside a symbol, and how many more there are."""

    owner: int
    concept: str
    kind: str
    name: str
    line: int
    text: str
    count: int


def text_detectors(concepts: Iterable[Concept]) -> tuple[TextDetector, ...]:
    """All detectors that read source text, ready to run."""
    found = []
    for concept in concepts:
        for detector in concept.detectors:
            if detector.kind in TEXT_KINDS:
                must = needles(detector)
                stems = tuple(tuple(max(re.findall(r"\w+", part) or [""], key=len) for part in parts) for parts in must)
                found.append(TextDetector(concept.id, detector.kind, detector.name, text_regexes(detector), _whole_words(detector), must, stems))
    return tuple(found)


def _whole_words(detector: Detector) -> frozenset[bytes]:
    return frozenset(name.encode() for name in detector.patterns) if detector.kind == "parameter" else frozenset()


def scan(data: bytes, spans: Sequence[Span], detectors: Sequence[TextDetector]) -> list[Match]:
    """First matches per (symbol, concept, detector), in line order; matches outside every symbol are left out."""
    text = data.decode("utf-8", errors="replace")
    words = set(data.translate(_WORD_BYTES).split())
    vocabulary = b"\n".join(words).decode("utf-8", errors="replace")
    lowered, lowered_vocabulary = "", vocabulary.lower()
    found: dict[tuple[int, str, str, str], tuple[int, str, int]] = {}
    owners: list[int] | None = None
    starts: list[int] = []
    for detector in detectors:
        alias = detector.kind == "alias"
        if detector.words and detector.words.isdisjoint(words):
            continue
        if detector.stems and not _holds(lowered_vocabulary if alias else vocabulary, detector.stems):
            continue
        lowered = lowered or (text.lower() if alias else "")
        body = lowered if alias else text
        if detector.needles and not _holds(body, detector.needles):
            continue
        for at in _offsets(detector, body):
            if owners is None:
                starts = _line_starts(text)
                owners = _owners(spans, len(starts))
            line = _line_of(starts, at)
            owner = owners[line]
            if not owner:
                continue
            place = (owner, detector.concept, detector.kind, detector.name)
            first = found.get(place)
            if first is None or line < first[0]:
                found[place] = (line, _snippet(text, starts, line), 1 + (first[2] if first else 0))
            else:
                found[place] = (first[0], first[1], first[2] + 1)
    matches = [Match(owner, concept, kind, name, line, snippet, count) for (owner, concept, kind, name), (line, snippet, count) in found.items()]
    return sorted(matches, key=lambda m: (m.line, m.concept, m.kind, m.name, m.owner))


def _holds(text: str, sets: tuple[tuple[str, ...], ...]) -> bool:
    """Whether a text holds all strings of one of the sets."""
    for strings in sets:
        for string in strings:
            if string not in text:
                break
        else:
            return True
    return False


def _offsets(detector: TextDetector, body: str) -> Iterator[int]:
    """Where it matches; flags and aliases only where a word begins, parameters at the name itself."""
    for regex in detector.regexes:
        for match in regex.finditer(body):
            at = match.start()
            if detector.kind == "parameter":
                at += len(match[0]) - len(match[0].lstrip("(,* \t\r\n"))
            elif detector.kind != "source" and at and (body[at - 1].isalnum() or body[at - 1] == "_"):
                continue
            yield at


def _line_starts(text: str) -> list[int]:
    """Offset of each line; index 0 is unused, so that line numbers index it."""
    starts = [0, 0]
    at = text.find("\n")
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n", at + 1)
    return starts


def _line_of(starts: Sequence[int], offset: int) -> int:
    import bisect

    return bisect.bisect_right(starts, offset, 1) - 1


def _owners(spans: Sequence[Span], lines: int) -> list[int]:
    """For each line the key of the shortest span over it, 0 where there is none: longer spans are painted first."""
    owners = [0] * (lines + 1)
    for span in sorted(spans, key=lambda s: (s.start - s.end, s.start, s.key)):
        start, end = span.start, min(span.end, lines)
        if start <= end:
            owners[start : end + 1] = [span.key] * (end - start + 1)
    return owners


def _snippet(text: str, starts: Sequence[int], line: int) -> str:
    end = starts[line + 1] - 1 if line + 1 < len(starts) else len(text)
    found = text[starts[line] : end].strip()
    return found if len(found) <= SNIPPET else found[: SNIPPET - 1] + "…"
