"""Frozen records that cross module boundaries; a face renders them, nobody passes rows or dicts around."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node to be written; `source` and `file` are ids of nodes that exist by then."""

    id: str
    kind: str
    name: str
    made_by: str
    doc: str = ""
    words: str | None = None  # None: split from the name
    source: str | None = None
    file: str | None = None
    line_start: int | None = None
    line_end: int | None = None
    data: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class NewEdge:
    """A relation to be written; both ends are ids of nodes that exist by then."""

    src: str
    type: str
    dst: str
    made_by: str
    how: str = "exact"
    file: str | None = None
    line: int = 0
    data: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A node as read; `path` is the file's path on disk, so that `path:line` can be opened."""

    key: int
    id: str
    kind: str
    name: str
    doc: str
    made_by: str
    path: str | None = None
    line_start: int | None = None
    line_end: int | None = None
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def citation(self) -> str | None:
        """`path:line`, or None where the node stands in no file."""
        return f"{self.path}:{self.line_start}" if self.path and self.line_start else self.path


@dataclass(frozen=True, slots=True)
class Edge:
    """A relation as read, with ids at both ends."""

    key: int
    src: str
    type: str
    dst: str
    how: str
    made_by: str
    path: str | None = None
    line: int = 0
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hit:
    """One answer of a search, best first."""

    node: Node
    why: str  # name, words, doc, substring


@dataclass(frozen=True, slots=True)
class Neighbor:
    """One step from a node: the relation, its direction seen from there, and the other end."""

    edge: Edge
    direction: str  # out, in
    node: Node
    hop: int


@dataclass(frozen=True, slots=True)
class Neighborhood:
    """What lies around a node; `more` counts what the fan-out cap left out, per (hop, type, direction)."""

    center: Node
    neighbors: tuple[Neighbor, ...]
    more: tuple[tuple[str, int], ...]


def plain(value: Any) -> Any:
    """A record as JSON-ready data, nested records included."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)
