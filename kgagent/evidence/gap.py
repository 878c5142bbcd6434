"""Two runs side by side, largest difference first: by op class, by line, by function, by concept. Rows sum to the difference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kgagent.errors import UsageError
from kgagent.evidence.attribution import Origin
from kgagent.evidence.weigh import Weighed, WeightedOp

UNKNOWN = "(no line)"
NO_CONCEPT = "(no concept)"
Key = Callable[[WeightedOp, Origin | None], str]


@dataclass(frozen=True, slots=True)
class GapRow:
    """One key's weight on both sides, with the heaviest operations and lines that make it up."""

    key: str
    a: float
    b: float
    a_ops: tuple[str, ...]
    b_ops: tuple[str, ...]
    a_lines: tuple[str, ...]  # path:line of their innermost frames, heaviest first
    b_lines: tuple[str, ...]

    @property
    def difference(self) -> float:
        return self.b - self.a


@dataclass(frozen=True, slots=True)
class Gap:
    """From `a` to `b`; positive differences are what `b` pays more."""

    by: str
    unit: str
    a_total: float
    b_total: float
    rows: tuple[GapRow, ...]


def by_class(op: WeightedOp, origin: Origin | None) -> str:
    """What kind of work it is."""
    return f"kernel {op.kernel}" if op.kernel else op.op_class


def by_line(op: WeightedOp, origin: Origin | None) -> str:
    """The innermost line."""
    return origin.frames[0].place if origin else UNKNOWN


def by_function(op: WeightedOp, origin: Origin | None) -> str:
    """The innermost function with its file."""
    return f"{origin.frames[0].function or '?'} ({origin.frames[0].file})" if origin else UNKNOWN


def gap(a: Weighed, b: Weighed, key: Key = by_class, by: str = "class") -> Gap:
    """Weights of both sides by a key; both must be in the same unit."""
    if a.unit != b.unit:
        raise UsageError(f"{a.unit} can't be compared with {b.unit}", hint="measure both, or take a static cost of both")
    sides: list[dict[str, float]] = [defaultdict(float), defaultdict(float)]
    makers, places = _Sums(), _Sums()
    for side, weighed in enumerate((a, b)):
        for op, origin, weight in _parts(weighed):
            name = key(op, origin)
            sides[side][name] += weight
            makers.add(side, name, op.name, weight)
            if origin is not None:
                places.add(side, name, origin.frames[0].place, weight)
    rows = [
        GapRow(name, sides[0].get(name, 0.0), sides[1].get(name, 0.0), makers.heaviest(0, name), makers.heaviest(1, name), places.heaviest(0, name),
               places.heaviest(1, name))
        for name in {**sides[0], **sides[1]}
    ]  # fmt: skip
    rows.sort(key=lambda row: (-abs(row.difference), row.key))
    return Gap(by, a.unit, a.total, b.total, tuple(rows))


def _parts(weighed: Weighed) -> Iterator[tuple[WeightedOp, Origin | None, float]]:
    for op in weighed.ops:
        for origin in op.origins:
            yield op, origin, op.weight * origin.share
        if not op.origins:
            yield op, None, op.weight


class _Sums:
    """What makes up each key of each side."""

    def __init__(self) -> None:
        self.sides: tuple[dict[str, dict[str, float]], ...] = ({}, {})

    def add(self, side: int, key: str, part: str, weight: float) -> None:
        parts = self.sides[side].setdefault(key, {})
        parts[part] = parts.get(part, 0.0) + weight

    def heaviest(self, side: int, key: str, keep: int = 5) -> tuple[str, ...]:
        parts = self.sides[side].get(key, {})
        return tuple(sorted(parts, key=lambda part: (-parts[part], part))[:keep])
