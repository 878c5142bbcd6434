"""What a kernel is for: the first family of families.toml that its words, else its concepts, fit.

Families are data, so that a person adds one without reading code and no package is a special case.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from kgagent.errors import ConfigError

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


@dataclass(frozen=True, slots=True)
class Family:
    """A function kernels have; `phrases` are words with a space before, between and after each."""

    slug: str
    title: str
    phrases: tuple[str, ...]
    concepts: frozenset[str]


OTHER = Family("other", "Others", (), frozenset())


@cache
def load_families() -> tuple[Family, ...]:
    """All families, narrow ones first, then the one for what fits none."""
    text = resources.files("kgagent.wiki").joinpath("families.toml").read_text(encoding="utf-8")
    try:
        tables = tomllib.loads(text)["family"]
        found = [
            Family(table["slug"], table["title"], tuple(f" {phrase} " for phrase in table["words"]), frozenset(f"concept:{c}" for c in table["concepts"]))
            for table in tables
        ]
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise ConfigError(f"families.toml can't be read: {error}", where="kgagent/wiki/families.toml", hint="restore it from the package") from error
    return (*found, OTHER)


def spaced(name: str) -> str:
    """` flash attention kernel v 2 `: the words of one name, so that a phrase is found by a plain `in`."""
    return f" {' '.join(_WORD.findall(name)).lower()} "


def family_of(names: Sequence[str], concepts: Mapping[str, int], families: Iterable[Family]) -> Family:
    """By the words of the names; else by the concepts mentioned most often, counted per family; else OTHER."""
    texts = [spaced(name) for name in names]
    ordered = tuple(families)
    for family in ordered:
        if any(phrase in text for phrase in family.phrases for text in texts):
            return family
    counts = [sum(count for concept, count in concepts.items() if concept in family.concepts) for family in ordered]
    most = max(counts, default=0)
    return ordered[counts.index(most)] if most else OTHER
