"""Generated regions of a page: their markers, their hashes, and replacing one without moving a byte around it.

A region lies between `<!-- kg:begin NAME SHA256 -->` and `<!-- kg:end NAME -->`, each alone on its line. HTML comments are
hidden in Obsidian's reading view and on GitHub alike; Obsidian's own `%%` comments would show on GitHub as text.
The hash is that of the lines between, so an edit by a person is seen, and then the region is theirs: it stays as it is and is reported.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

_BEGIN = re.compile(r"^<!-- kg:begin ([a-z0-9-]+) ([0-9a-f]{64}) -->[ \t]*\r?$", re.MULTILINE)
_MARK = re.compile(r"^[ \t]*<!-- kg:(?:begin|end)\b[^\n]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Region:
    """One region as found: `start` to `end` cover its markers, without the last line's newline."""

    name: str
    sha: str
    content: str
    start: int
    end: int

    @property
    def intact(self) -> bool:
        """Whether nobody edited it since it was written."""
        return self.sha == content_hash(self.content)


class Damaged(ValueError):
    """Markers that don't pair up; nothing may be replaced in such a page."""


def content_hash(content: str) -> str:
    """SHA-256 of a region's text; line endings don't count, because git and editors change them."""
    return hashlib.sha256(content.replace("\r\n", "\n").encode()).hexdigest()


def write_region(name: str, content: str) -> str:
    """A region with its markers; `content` ends in a newline."""
    return f"<!-- kg:begin {name} {content_hash(content)} -->\n{content}<!-- kg:end {name} -->"


def find_regions(text: str) -> list[Region]:
    """Every region in order; `Damaged` says which marker has no partner."""
    found: list[Region] = []
    at = 0
    while (begin := _BEGIN.search(text, at)) is not None:
        end = re.compile(rf"^<!-- kg:end {re.escape(begin.group(1))} -->[ \t]*\r?$", re.MULTILINE).search(text, begin.end())
        if end is None:
            raise Damaged(f"region {begin.group(1)} is never closed")
        found.append(Region(begin.group(1), begin.group(2), text[begin.end() + 1 : end.start()], begin.start(), end.end() - (text[end.end() - 1] == "\r")))
        at = end.end()
    inside = sum(len(_MARK.findall(text[region.start : region.end])) for region in found)
    if inside != 2 * len(found) or len(_MARK.findall(text)) != inside:
        raise Damaged("a region's markers don't pair up")
    if len({region.name for region in found}) != len(found):
        raise Damaged("a region stands there twice")
    return found


def outside(text: str, regions: list[Region]) -> str:
    """The text that no region covers."""
    parts, at = [], 0
    for region in regions:
        parts.append(text[at : region.start])
        at = region.end
    return "".join([*parts, text[at:]])
