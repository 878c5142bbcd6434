"""Frozen records of what concept pages say and of what reading and linking them did.

Records, not dicts: the graph writer, the linker and the tests agree on names, and a typo is a type error.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kgagent.errors import ConfigError

DETECTOR_KINDS = ("symbol", "parameter", "source", "flag", "hlo", "alias")
RELATIONS = ("requires", "conflicts_with", "enables")


@dataclass(frozen=True, slots=True)
class Detector:
    """One way to recognise a concept; `patterns` are globs, names, phrases, or a single regex for `source`."""

    kind: str
    name: str
    patterns: tuple[str, ...]
    line: int

    @property
    def label(self) -> str:
        """How an edge names the detector that fired."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Lever:
    """Something one can do about a concept."""

    slug: str
    text: str
    line: int

    @property
    def id(self) -> str:
        return f"lever:{self.slug}"


@dataclass(frozen=True, slots=True)
class Relation:
    """`src type dst`, true within `scope`; both ends are node ids of levers or concepts."""

    src: str
    type: str
    dst: str
    scope: str
    line: int


@dataclass(frozen=True, slots=True)
class Citation:
    """Where a fact can be checked. `kind`: code, url, paper, repo, here."""

    kind: str
    text: str
    path: str = ""  # code and here: the file below the package's parent folder, or below the checkout
    symbol: str = ""

    @property
    def symbol_id(self) -> str:
        """The graph id of the cited Python name, '' when it isn't Python source."""
        if self.kind != "code" or not self.path.endswith(".py"):
            return ""
        module = self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return f"sym:{module}.{self.symbol}" if self.symbol else f"sym:{module}"


@dataclass(frozen=True, slots=True)
class Fact:
    """One checkable sentence with where it holds and who says so."""

    text: str
    at: str
    value: float | None
    unit: str
    measured: bool
    citations: tuple[Citation, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Concept:
    """A concept page, read."""

    slug: str
    title: str
    summary: str  # why it is faster or slower, in one sentence
    path: Path
    lines: int
    aliases: tuple[str, ...]
    tags: tuple[str, ...]
    definition: str
    mechanism: str
    applies: str
    not_applies: str
    detectors: tuple[Detector, ...]
    levers: tuple[Lever, ...]
    relations: tuple[Relation, ...]
    facts: tuple[Fact, ...]
    links: tuple[tuple[str, int], ...]  # [[slug]] in the body, with its line

    @property
    def id(self) -> str:
        return f"concept:{self.slug}"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a page was left out, or a line of it ignored: what, where, next step."""

    what: str
    where: str
    hint: str

    def __str__(self) -> str:
        return f"{self.what} ({self.where})" + (f"; {self.hint}" if self.hint else "")

    @classmethod
    def of(cls, error: ConfigError) -> Problem:
        return cls(error.what, error.where, error.hint)


@dataclass(frozen=True, slots=True)
class Loaded:
    """All readable pages of a folder, and what was wrong with the others."""

    concepts: tuple[Concept, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class ConceptReport:
    """What `sync_concepts` found and changed; counts are rows of the graph."""

    concepts: int
    levers: int
    claims: int
    relations: int
    added: int
    updated: int
    removed: int
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class LinkReport:
    """What `link` read and changed; `fired` counts matches per detector, most first."""

    files: int
    scanned: int
    mentions: int
    added: int
    removed: int
    concepts: int
    fired: tuple[tuple[str, int], ...]
    problems: tuple[Problem, ...]
