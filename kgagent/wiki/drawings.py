"""Drawings beside pages: one SVG a profile, written only when it differs, left alone once a person edited it.

The wiki knows no drawing itself: whoever renders hands in a function that draws a node.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from kgagent.errors import StorageError
from kgagent.graph import Graph
from kgagent.wiki.vault import Conflict, Vault

Draw = Callable[[Graph, str], str]  # (graph, node id) -> SVG, "" for nothing to draw

_MARK = re.compile(r"<!-- kg:drawing ([0-9a-f]{64}) -->\n")


def drawing_path(page: Path) -> Path:
    """A page's drawing has the page's name."""
    return page.with_suffix(".svg")


def put_drawing(vault: Vault, path: Path, svg: str) -> None:
    """Write, refresh or (for "") remove a drawing; one that a person edited stays and is reported."""
    wanted = _marked(svg) if svg else ""
    known = _read(vault, path)
    if known is None:
        return
    if known == wanted:
        vault.unchanged += bool(known)
    elif known and not _intact(known):
        vault.conflicts.append(Conflict(vault.short(path), "the drawing was edited; it stays as you left it", "delete it to have it drawn anew"))
    elif wanted:
        vault.put_file(path, wanted)
    else:
        _remove(vault, path)


def _marked(svg: str) -> str:
    return f"<!-- kg:drawing {hashlib.sha256(svg.encode()).hexdigest()} -->\n{svg}"


def _intact(text: str) -> bool:
    found = _MARK.match(text)
    return found is not None and found.group(1) == hashlib.sha256(text[found.end() :].encode()).hexdigest()


def _read(vault: Vault, path: Path) -> str | None:
    """The file's text, "" where there is none, None where it can't be touched."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        vault.conflicts.append(Conflict(vault.short(path), f"the drawing can't be read: {error}", "delete it to have it drawn anew"))
        return None


def _remove(vault: Vault, path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        raise StorageError(f"can't remove a drawing: {error.strerror or error}", where=str(path)) from error
    vault.removed.append(vault.short(path))
