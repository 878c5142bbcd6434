"""A question in free text as the words that name something: the subject's, and those it is set against."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from kgagent.errors import UsageError
from kgagent.graph.words import split_identifier

_ID = re.compile(r"\S+:\S+")
_WORD = re.compile(r"[^\W_]+")
_TOPOLOGY = re.compile(r"\b(?:tpu|v|tpuv)\d+[a-z]*(?::\d+(?:x\d+)+)?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words of words.toml."""

    stop: frozenset[str]
    against: frozenset[str]
    backward: frozenset[str]
    side: frozenset[str]


@dataclass(frozen=True, slots=True)
class Question:
    """The text and its words; `ids` are node ids somebody typed, `chip` a chip or topology named, '' when none."""

    text: str
    terms: tuple[str, ...]
    against: tuple[str, ...]
    ids: tuple[str, ...]
    chip: str


@cache
def vocabulary() -> Vocabulary:
    """words.toml, read once."""
    words = tomllib.loads(resources.files("kgagent.ask").joinpath("words.toml").read_text(encoding="utf-8"))
    return Vocabulary(*(frozenset(words[name]) for name in ("stop", "against", "backward", "side")))


def tokens(text: str) -> list[str]:
    """Lowercase words of a text or identifier: whole, and split where the case changes."""
    found: list[str] = []
    for word in _WORD.findall(text):
        parts = split_identifier(word).split() if word.lower() != word and word.upper() != word else []
        found.extend([word.lower(), *parts])
    return list(dict.fromkeys(found))


def read_question(text: str) -> Question:
    """Words that name something, in order; a question without any is a `UsageError`."""
    known = vocabulary()
    ids = tuple(word.strip("?!,;\"'`()") for word in _ID.findall(text) if not _TOPOLOGY.fullmatch(word.strip("?!,;.\"'`()")))
    named = _TOPOLOGY.search(text)
    chip = named.group(0).lower() if named else ""
    rest = text.replace(named.group(0), " ") if named else text
    for id_ in ids:
        rest = rest.replace(id_, " ")
    words = [word.lower() for word in _WORD.findall(rest)]
    cut = next((i for i, word in enumerate(words) if word in known.against), len(words))
    terms = tuple(dict.fromkeys(word for word in words[:cut] if word not in known.stop))
    against = tuple(dict.fromkeys(word for word in words[cut + 1 :] if word not in known.stop | known.against))
    if not terms and not ids:
        terms, against = against, ()
    if not terms and not ids:
        raise UsageError(
            "the question names nothing to explain", where=repr(text.strip()), hint='name a kernel, a concept or a knob\'s value: "why is splash fast here"'
        )
    return Question(text.strip(), terms, against, ids, chip)
