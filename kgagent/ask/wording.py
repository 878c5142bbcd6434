"""Numbers as a colleague writes them: exact, with units, and no more digits than they carry."""

from __future__ import annotations

import re
from typing import Any

_DIMS = re.compile(r"\[([0-9,<=]*)\]")
_NOT_PROSE = re.compile(r"\s*(?:[|#>]|```|~~~|[-*+] |\d+[.)] )|    ")
_WIKILINK = re.compile(r"\[\[(?:[^\]|]*\|)?([^\]|]*)\]\]")
_LAYOUT = re.compile(r"(?<=\])\{[^{}]*\}")


def size(count: float) -> str:
    """Bytes in binary units: `512 MiB`, `1.25 GiB`."""
    value, unit = float(count), "B"
    for following in ("KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024:
            break
        value, unit = value / 1024, following
    return f"{value:.4g} {unit}"


def times(value: float) -> str:
    """A speedup: `3.12x`; three digits however small."""
    return f"{value:.3g}x" if value < 100 else f"{value:.0f}x"


def counted(number: int, word: str) -> str:
    """`1 instruction`, `3 instructions`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def listed(parts: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1] if parts else ""


def first_sentence(text: str, limit: int = 320) -> str:
    """The first sentence of a text, on one line; tables, lists, code and headings are passed over."""
    prose: list[str] = []
    for line in text.splitlines():
        if line.strip() and not _NOT_PROSE.match(line):
            prose.append(line)
        elif prose:
            break
    flat = _WIKILINK.sub(r"\1", " ".join(" ".join(prose).split()))
    match = re.search(r"(?<=[a-z0-9)\]`'\"][.!?])\s+(?=[A-Z`])", flat)
    sentence = flat[: match.start()] if match else flat
    return sentence if len(sentence) <= limit else sentence[: limit - 1].rsplit(" ", 1)[0] + " …"


def dims(shape: str) -> list[tuple[int, ...]]:
    """Dimensions of an HLO shape's array, or of each array of a tuple."""
    return [tuple(int(part.lstrip("<=")) for part in inner.split(",") if part.lstrip("<=").isdigit()) for inner in _DIMS.findall(shape)]


def bare(shape: str) -> str:
    """An HLO shape without its memory layout."""
    return _LAYOUT.sub("", shape)


def clipped(text: str, limit: int) -> str:
    """A text on one line, with … where it goes on."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def settings(values: dict[str, Any]) -> str:
    """`block_q=256, impl=splash`, sorted."""
    return ", ".join(f"{name}={plain_value(value)}" for name, value in sorted(values.items()))


def plain_value(value: Any) -> str:
    """A knob's value as it is typed on a command line."""
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
