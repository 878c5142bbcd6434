"""Documents and configuration: headings as spans, flags on their lines, and kernel catalogues kept as tables."""

from __future__ import annotations

import json
import re
from typing import Any

from kgagent.graph.words import split_identifier
from kgagent.ingest.catalogue import from_rows, rows_of
from kgagent.ingest.flags import flags_in
from kgagent.ingest.shapes import FACTS_VERSION, SECTION, Symbol

MARKDOWN, RST, SHELL, YAML, TOML, CSV, JSON, HTML, PDF = ".md", ".rst", ".sh", ".yaml", ".toml", ".csv", ".json", ".html", ".pdf"
KINDS = {
    ".md": MARKDOWN, ".rst": RST, ".sh": SHELL, ".bash": SHELL, ".yaml": YAML, ".yml": YAML, ".toml": TOML, ".csv": CSV, ".json": JSON,
    ".html": HTML, ".htm": HTML, ".pdf": PDF,
}  # fmt: skip
SUFFIXES = tuple(KINDS)
Heading = tuple[int, int, str]  # line, level, title
_HEADING = re.compile(r"(#{1,6})\s+(.+?)\s*#*\s*\Z")
_FENCE = re.compile(r"\s*(```|~~~)")
_UNDERLINE = re.compile(r"([=\-~^\"'`#*+.:])\1{2,}\s*\Z")


def read_document(text: str, kind: str) -> tuple[list[Symbol], dict[str, Any]]:
    """(sections, facts) of a text file."""
    if kind == HTML:
        from kgagent.ingest.html import Page

        page = Page(text)
        return document(page.headings, page.lines, from_rows(page.rows), 0)
    lines = text.splitlines() if kind != JSON or "xla_" in text else []
    headings = markdown_headings(lines) if kind == MARKDOWN else rst_headings(lines) if kind == RST else []
    return document(headings, lines, rows_of(text, kind), tuning_entries(text) if kind == JSON else 0)


def read_pages(data: bytes) -> tuple[list[Symbol], dict[str, Any]]:
    """(sections, facts) of a PDF: its bookmarks, or a section a page; a line of it is a page."""
    from kgagent.ingest.pdf import read_pdf

    pdf = read_pdf(data)
    return document(pdf.outline or [(number, 1, f"page {number}") for number in range(1, len(pdf.pages) + 1)], pdf.pages, [], 0, unit="page")


def document(headings: list[Heading], lines: list[str], catalogue: list[list[object]], tuning: int, unit: str = "line") -> tuple[list[Symbol], dict[str, Any]]:
    """Sections and facts, whatever the text came from."""
    symbols = sections(headings, lines, unit)
    starts = [(symbol.line_start, index) for index, symbol in enumerate(symbols)]
    flags = []
    for number, line in enumerate(lines, 1):
        if "xla_" in line or "megascale_" in line or "libtpu_" in line:
            for name, value in flags_in(line):
                flags.append([max((index for start, index in starts if start <= number), default=-1), name, value, number])
    facts = {
        "version": FACTS_VERSION, "module": "", "quals": [s.qual for s in symbols], "kinds": SECTION * len(symbols), "parents": [s.parent for s in symbols],
        "lines": [s.line_start for s in symbols], "names": [], "references": [], "imports": [], "sites": [], "vjps": [], "annotations": {}, "tunables": {},
        "unresolved": 0, "flags": flags, "catalogue": catalogue, "tuning": tuning,
    }  # fmt: skip
    return symbols, facts


def markdown_headings(lines: list[str]) -> list[Heading]:
    """(line, level, title), fenced code left out."""
    found, fence = [], ""
    for number, line in enumerate(lines, 1):
        mark = _FENCE.match(line)
        if mark and (not fence or mark.group(1) == fence):
            fence = "" if fence else mark.group(1)
        elif not fence and (heading := _HEADING.match(line)):
            found.append((number, len(heading.group(1)), heading.group(2)))
    return found


def rst_headings(lines: list[str]) -> list[Heading]:
    """Titles over their underlines; levels in the order the underline characters first appear."""
    found: list[Heading] = []
    order: list[str] = []
    for number in range(1, len(lines)):
        title, under = lines[number - 1].rstrip(), lines[number]
        if title and not title.startswith((" ", "..")) and not _UNDERLINE.match(title) and _UNDERLINE.match(under) and len(under.rstrip()) >= len(title) - 1:
            mark = under[0]
            if mark not in order:
                order.append(mark)
            found.append((number, order.index(mark) + 1, title))
    return found


def sections(headings: list[Heading], lines: list[str], unit: str = "line") -> list[Symbol]:
    """Each heading spans to the next of its level or above; its own text, up to the next heading of any level, is its doc.

    A heading fills its line, but not its page.
    """
    symbols: list[Symbol] = []
    open_: list[tuple[int, int]] = []  # level, index
    taken: dict[str, int] = {}
    for place, (line, level, title) in enumerate(headings):
        while open_ and open_[-1][0] >= level:
            open_.pop()
        end = next((other - 1 for other, deep, _ in headings[place + 1 :] if deep <= level), len(lines))
        own_end = headings[place + 1][0] - 1 if place + 1 < len(headings) else len(lines)
        slug = "-".join(re.findall(r"\w+", title.lower())) or "section"
        taken[slug] = taken.get(slug, 0) + 1
        qual = slug if taken[slug] == 1 else f"{slug}~{taken[slug]}"
        doc = "\n".join(lines[line - 1 : max(line, own_end)] if unit == "page" else lines[line:own_end]).strip()
        data = json.dumps({"kind": "section", "level": level, "title": title} | ({"unit": unit} if unit != "line" else {}), ensure_ascii=False)
        symbols.append(Symbol(open_[-1][1] if open_ else -1, SECTION, qual, line, max(line, end), doc, split_identifier(title), data))
        open_.append((level, len(symbols) - 1))
    return symbols


def tuning_entries(text: str) -> int:
    """How many shapes a stored autotuning result knows: a JSON object whose keys spell objects. Counted, not parsed: they are megabytes."""
    return text.count('\n  "{\\"') if text.startswith('{\n  "{\\"') else 0
