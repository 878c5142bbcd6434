"""Flame graphs by source function: a tree, one self-contained SVG, and speedscope's JSON. Widths sum to the run's total."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from xml.sax.saxutils import escape, quoteattr

from kgagent.evidence.frames import Frame
from kgagent.evidence.recorded import weighed_from_graph
from kgagent.evidence.weigh import Weighed
from kgagent.graph.store import Graph

UNATTRIBUTED = "unattributed"
_PARTS_KEPT = 3  # of a path
_WIDTH, _ROW, _TOP, _NARROWEST, _CHARACTER = 1200, 18, 46, 0.4, 6.6


@dataclass(slots=True)
class Box:
    """One function in one stack; `lines` tells how its own weight is spread over its lines."""

    name: str
    file: str
    weight: float = 0.0
    children: dict[tuple[str, str], Box] = field(default_factory=dict)
    lines: dict[int, float] = field(default_factory=dict)


def flame(weighed: Weighed) -> Box:
    """The tree, outermost function first; what has no line is a box of its own."""
    root = Box("all", "", weighed.total)
    for op in weighed.ops:
        for origin in op.origins:
            _add(root, origin.frames, op.weight * origin.share)
        if not op.origins:
            box = root.children.setdefault((UNATTRIBUTED, ""), Box(UNATTRIBUTED, ""))
            box.weight += op.weight
    return root


def _add(root: Box, frames: tuple[Frame, ...], weight: float) -> None:
    box = root
    for frame in reversed(frames):
        name = frame.function or f"line {frame.line}"
        key = (name, frame.file)
        if key != (box.name, box.file):  # recursion and several lines of one function are one box
            box = box.children.setdefault(key, Box(name, frame.file))
            box.weight += weight
    box.lines[frames[0].line] = box.lines.get(frames[0].line, 0.0) + weight


def flame_svg(weighed: Weighed, title: str) -> str:
    """One SVG file without scripts; every box has a tooltip, and what is too narrow to draw is counted."""
    root = flame(weighed)
    drawn: list[str] = []
    narrow = _draw(root, 0.0, 0, root.weight or 1.0, weighed.unit, drawn)
    depth = _depth(root)
    height = _TOP + depth * _ROW + 26
    left_out = f"; {narrow} boxes narrower than {_NARROWEST} px not drawn" if narrow else ""
    kind = "predicted, " if weighed.predicted else ""
    note = f"{kind}{weighed.total:,.1f} {weighed.unit}; {weighed.remainder_text}{left_out}"
    if weighed.blind:
        note += f"; {weighed.blind}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="ui-monospace, monospace" font-size="11">\n<rect width="100%" height="100%" fill="#fdfcf9"/>\n'
        f'<text x="8" y="18" font-size="14">{escape(title)}</text>\n<text x="8" y="36" fill="#555">{escape(note)}</text>\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def _depth(box: Box) -> int:
    return 1 + max((_depth(child) for child in box.children.values()), default=0)


def _draw(box: Box, x: float, level: int, total: float, unit: str, out: list[str]) -> int:
    """Append a box and those above it; returns how many were too narrow."""
    width = _WIDTH * box.weight / total
    if width < _NARROWEST:
        return 1 + sum(1 for _ in _below(box))
    place = f" {box.file}" if box.file else ""
    lines = "".join(f"\n line {line}: {weight:,.1f} {unit}" for line, weight in sorted(box.lines.items(), key=lambda item: -item[1])[:12])
    more = f"\n and {len(box.lines) - 12} more lines" if len(box.lines) > 12 else ""
    tip = f"{box.name}{place}: {box.weight:,.1f} {unit}, {100 * box.weight / total:.1f}%{lines}{more}"
    room = int(width / _CHARACTER) - 1
    short = box.name if not box.file else f"{box.name} ({PurePath(box.file).name})"
    label = short if len(short) <= room else (short[: room - 1] + "…" if room > 3 else "")
    y = _TOP + level * _ROW
    out.append(
        f'<g><title>{escape(tip)}</title><rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_ROW - 1}" fill={quoteattr(_colour(box))} rx="1.5"/>'
        f'<text x="{x + 3:.2f}" y="{y + 12}" pointer-events="none">{escape(label)}</text></g>'
    )
    narrow = 0
    for child in sorted(box.children.values(), key=lambda child: -child.weight):
        narrow += _draw(child, x, level + 1, total, unit, out)
        x += _WIDTH * child.weight / total
    return narrow


def _below(box: Box) -> Iterator[Box]:
    for child in box.children.values():
        yield child
        yield from _below(child)


def _colour(box: Box) -> str:
    """One hue a file, so that the user's code and a library's can be told apart; grey for what is unknown."""
    if not box.file:
        return "#d8d8d8"
    return f"hsl({zlib.crc32(box.file.encode()) % 360}, 62%, 76%)"


def flame_of(graph: Graph, profile: str) -> str:
    """The SVG of a recorded run or compile; "" where nothing was weighed. Paths are cut to their ends, so that it is the same on any machine."""
    weighed = weighed_from_graph(graph, profile)
    if not weighed.total:
        return ""
    ops = tuple(replace(op, origins=tuple(replace(origin, frames=tuple(map(_shortened, origin.frames))) for origin in op.origins)) for op in weighed.ops)
    return flame_svg(replace(weighed, ops=ops), profile)


def _shortened(frame: Frame) -> Frame:
    return replace(frame, file="/".join(frame.file.split("/")[-_PARTS_KEPT:]))


def speedscope(weighed: Weighed, title: str) -> str:
    """The same weights for speedscope.app: one sample an origin, weights summing to the total."""
    index: dict[tuple[str, str, int], int] = {}
    samples: list[list[int]] = []
    weights: list[float] = []

    def number(name: str, file: str, line: int) -> int:
        return index.setdefault((name, file, line), len(index))

    for op in weighed.ops:
        leaf = number(f"{op.op_class}: {op.kernel or op.name}", "", 0)
        for origin in op.origins:
            samples.append([*(number(f.function or f"line {f.line}", f.file, f.line) for f in reversed(origin.frames)), leaf])
            weights.append(op.weight * origin.share)
        if not op.origins:
            samples.append([number(UNATTRIBUTED, "", 0), leaf])
            weights.append(op.weight)
    unit = {"us": "microseconds", "bytes": "bytes"}.get(weighed.unit, "none")
    frames = [{"name": name, **({"file": file, "line": line} if file else {})} for name, file, line in index]
    return json.dumps(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "name": title,
            "shared": {"frames": frames},
            "profiles": [{"type": "sampled", "name": title, "unit": unit, "startValue": 0, "endValue": sum(weights), "samples": samples, "weights": weights}],
        }
    )
