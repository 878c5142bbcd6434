"""The compact shapes in which one file's facts travel from a parsing worker to the resolver, and into file.facts.

Tuples and short keys, because 1,400 files hold some 200,000 references and each is pickled, compressed and read again.
Nothing here knows another file: whatever a name means elsewhere is left as an absolute dotted target.
"""

from __future__ import annotations

from typing import Any, NamedTuple

# Bumped when facts change their shape: stored facts of another version are read from source again.
FACTS_VERSION = 4

# What a fault in reading one file may raise: it costs that file, never its source. Interrupts and refusals pass.
FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, NameError, RuntimeError, TypeError, ValueError)


class Unreadable(ValueError):
    """A file that can't be read, with the reason a person is told."""


# Kinds of definitions.
MODULE, CLASS, FUNCTION, CONSTANT, FIELD, REEXPORT, SECTION = "m", "c", "f", "k", "d", "r", "s"

# Resolutions from certain to not; a chain of steps is as certain as its weakest.
HOWS = ("exact", "alias", "re-export", "inferred", "candidate", "unresolved")
HOW_RANK = {how: rank for rank, how in enumerate(HOWS)}

# Names below these never lead to a Pallas backend by following them further.
EXTERNAL_ROOTS = ("jax.", "numpy.", "functools.", "dataclasses.", "typing.", "math.")

# Steps of a target besides plain names: the result of a call, and the class after this one in the inheritance order.
CALLED, SUPER = "()", "^"


class Target(NamedTuple):
    """An absolute dotted name, as the file's own scopes give it; `a.b.().c` is attribute c of what a.b(…) returns."""

    name: str
    how: str


class Symbol(NamedTuple):
    """One definition, ready to become a node."""

    parent: int  # index of the enclosing symbol; -1 for the module itself
    kind: str
    qual: str  # dotted name below the module; '' for the module
    line_start: int
    line_end: int
    doc: str
    words: str
    data: str  # JSON


class Reference(NamedTuple):
    """A use of a name: who (symbol index), how it is used (calls, uses), what, and where."""

    symbol: int
    type: str
    targets: tuple[Target, ...]
    line: int
    role: str  # '', base, decorator, annotation


class Argument(NamedTuple):
    """A callable handed to a call: slot is a position or keyword; `via` tells partial, variable, lambda, …"""

    slot: int | str
    targets: tuple[Target, ...]
    via: tuple[str, ...]
    text: str
    parameter: str  # the enclosing function's parameter it comes from, '' if none


class Site(NamedTuple):
    """A call that launches a kernel if its callee turns out to be a launching function."""

    symbol: int
    callee: tuple[Target, ...]
    callee_text: str
    line: int
    line_end: int
    arguments: tuple[Argument, ...]
    texts: dict[str, str]  # keyword → source text, for the keywords of a launch
    names: dict[str, list[str]]  # keyword → absolute names its expression rests on, variables followed
    form: str  # call, decorator, partial


class Parsed(NamedTuple):
    """What a worker hands back for one file."""

    number: int  # the task's
    sha: str
    size: int  # bytes
    status: str
    reason: str
    module: str
    symbols: list[Symbol]
    surface: bytes  # JSON: what other files can see of it
    facts: bytes  # compressed JSON: what it sees of others
    tunables: dict[str, list[list[Any]]]  # class or function → [name, line, default]


Surface = dict[str, Any]
Facts = dict[str, Any]


def weakest(*hows: str) -> str:
    """The least certain of several resolutions."""
    return HOWS[max(map(HOW_RANK.__getitem__, hows))]
