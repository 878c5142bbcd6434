"""What page writers share: the graph, the link to every page, and how a place in source is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kgagent.graph import Graph
from kgagent.wiki.text import code, label


@dataclass(frozen=True, slots=True)
class Facts:
    """The graph and the basename of each node's page; a node without a page is named by its id."""

    graph: Graph
    pages: dict[str, str]  # node id -> basename
    frontier: frozenset[int]  # keys of frontier experiments; the view ranks a whole lane, so it is read once
    drawings: dict[str, str] = field(default_factory=dict)  # node id -> file name beside its page

    def link(self, id_: str, shown: str = "") -> str:
        """A wikilink to the node's page, or its id as code."""
        page = self.pages.get(id_)
        return f"[[{page}|{label(shown or id_)}]]" if page else code(id_)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.graph.rows(sql, *values)


def place(file_id: str | None, line: int | None, end: int | None = None) -> str:
    """`jax/experimental/pallas/ops/x.py:12-40` as code: the source's name and the path inside it, the same on every machine."""
    if not file_id:
        return ""
    path = file_id.removeprefix("file:")
    if not line:
        return code(path)
    return code(f"{path}:{line}" + (f"-{end}" if end and end != line else ""))


def more(count: int, shown: int, how: str) -> str:
    """`and 12 more (...)`, '' when everything is shown."""
    return f"\nand {count - shown} more ({how})\n" if count > shown else ""


def counted(number: int, word: str) -> str:
    """`1 file`, `3 files`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def times(value: float) -> str:
    """A speedup with three digits."""
    return f"{value:.3g}x"


def mib(count: float) -> float:
    """Bytes as MiB, for a property that sorts."""
    return round(count / 1048576, 3)


def page(*parts: str) -> str:
    """Paragraphs with a blank line between them and one around, so that tables and lists render next to a comment."""
    return "\n" + "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n\n"
