"""Names and texts made safe for a vault: what a repository calls a thing must not become markup, a tag, a link or a path.

Everything a region holds goes through here, so no line of it can look like one of our own markers.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

_SLUG = re.compile(r"[^a-z0-9_]+")
_RUNS = re.compile(r"`+")
MAX_NAME = 72  # short paths: some systems stop at 260 characters for a whole path


def slug(text: str) -> str:
    """A lowercase file name from letters, digits, `-` and `_`; what is cut or lost is replaced by a short hash."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = _SLUG.sub("-", plain).strip("-_")
    if not name:
        return short_hash(text)
    if len(name) > MAX_NAME:
        return f"{name[: MAX_NAME - 7].rstrip('-_')}-{short_hash(text)}"
    return name


def short_hash(text: str) -> str:
    """Six hex digits that tell two names apart."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:6]


def prose(text: str) -> str:
    """A text on one line; balanced code spans stay, everything else that is markup to Obsidian or GitHub is escaped."""
    flat = " ".join(_printable(text).split())
    parts = flat.split("`")
    if len(parts) % 2 == 0:
        return _escape(flat.replace("`", "'"))
    return "".join(_escape(part) if i % 2 == 0 else f"`{part}`" for i, part in enumerate(parts))


def code(text: str) -> str:
    """A text as a code span on one line, whatever backticks it holds."""
    flat = " ".join(_printable(text).split()) or " "
    runs = [len(run) for run in _RUNS.findall(flat)]
    fence = "`" * next(n for n in range(1, len(runs) + 2) if n not in runs)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


def block(text: str) -> str:
    """A text as a fenced block, its lines kept."""
    lines = [_printable(line).replace("<!-- kg:", "<!- - kg:") for line in text.rstrip("\n").splitlines()]
    longest = max((len(run) for line in lines for run in _RUNS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *lines, fence])


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table of cells that are already `prose`, `code` or links; '' without rows."""
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def label(text: str) -> str:
    """What a link shows: no character that ends the link or starts markup."""
    flat = " ".join(_printable(text).split())
    return re.sub(r"[\[\]|#^`<>]", " ", flat).replace("%%", "% %").replace("  ", " ").strip() or "unnamed"


def _cell(text: str) -> str:
    """A `|` inside a cell is escaped unless it already is."""
    return re.sub(r"(?<!\\)\|", r"\\|", text.replace("\n", " "))


def _printable(text: str) -> str:
    """Control characters and lone surrogates as spaces: a file must stay UTF-8 and its lines ours."""
    if text.isprintable():
        return text
    return "".join(ch if ch in "\t" or (unicodedata.category(ch) not in ("Cc", "Cs", "Zl", "Zp")) else " " for ch in text)


def _escape(text: str) -> str:
    text = re.sub(r"([\\*_$~])", r"\\\1", text)
    text = text.replace("<", "&lt;").replace("[[", "&#91;&#91;").replace("]]", "&#93;&#93;").replace("%%", "&#37;&#37;").replace("![", "!&#91;")
    text = re.sub(r"(?<!&)#", r"\\#", text)
    return re.sub(r"^([-+>=]|\d+[.)])(?=\s|$)", r"\\\1", text)
