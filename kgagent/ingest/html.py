"""HTML as text with its source's line numbers: what a reader sees, headings, and rows of tables.

Python's own tokenizer, because it alone says on which line each piece of text stands, and a citation needs that.
"""

from __future__ import annotations

from html.parser import HTMLParser

HIDDEN = frozenset({"script", "style", "template", "noscript", "svg", "head", "title", "nav"})
BLOCKS = frozenset({"p", "div", "li", "tr", "td", "th", "br", "pre", "section", "table", "ul", "ol", "dt", "dd", "blockquote"})
HEADINGS = {f"h{level}": level for level in range(1, 7)}
PERMALINKS = "¶#"  # what documentation generators hang on a heading


class Page(HTMLParser):
    """Text by line, headings, and tables by row, of one page; unclosed and stray tags are put up with."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.lines = [""] * (text.count("\n") + 1)
        self.headings: list[tuple[int, int, str]] = []  # line, level, title
        self.rows: list[tuple[int, int, list[str]]] = []  # table, line, cells
        self._hidden: list[str] = []
        self._heading: tuple[int, int, list[str]] | None = None
        self._cell: list[str] | None = None
        self._tables = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        line = self.getpos()[0]
        if self._hidden and self._hidden[-1] == "head" and (tag == "body" or tag in BLOCKS or tag in HEADINGS):
            self._hidden.pop()  # </head> may be left out
        if tag in HIDDEN:
            self._hidden.append(tag)
        elif tag in HEADINGS:
            self._end_heading()
            self._heading = (line, HEADINGS[tag], [])
        elif tag == "table":
            self._tables += 1
        elif tag == "tr":
            self.rows.append((self._tables, line, []))
        elif tag in ("td", "th") and self.rows:
            self._cell = []
        if tag in BLOCKS:
            self._say(line, " ")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            while self._hidden.pop() != tag:
                pass
        elif tag in HEADINGS:
            self._end_heading()
        elif tag in ("td", "th") and self._cell is not None and self.rows:
            self.rows[-1][2].append(" ".join("".join(self._cell).split()))
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        for offset, part in enumerate(data.split("\n")):
            self._say(self.getpos()[0] + offset, part)
        if self._heading is not None:
            self._heading[2].append(data)
        if self._cell is not None:
            self._cell.append(data)

    def _say(self, line: int, text: str) -> None:
        if line <= len(self.lines):
            self.lines[line - 1] += text

    def _end_heading(self) -> None:
        if self._heading is not None:
            line, level, parts = self._heading
            title = " ".join("".join(parts).split()).rstrip(PERMALINKS).strip()
            if title:
                self.headings.append((line, level, title))
            self._heading = None
