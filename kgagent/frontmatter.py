"""Markdown with YAML frontmatter, read so that nothing is guessed and written so that nothing else moves.

YAML 1.1 turns `no` into False, `12:30` into 750 and `1.10` into 1.1; every scalar is therefore read as the text it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kgagent.errors import ConfigError

FENCE = "---"

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\t": "\\t", "\r": "\\r", "\n": "\\n"}
# What ends a double-quoted scalar, what YAML forbids in one, and what a line reader would split at.
_UNSAFE = re.compile('[\\\\"\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff\\ufeff\\ufffe\\uffff]')


@dataclass(frozen=True, slots=True)
class Page:
    """A page split in two; scalars in `meta` are str, containers list or dict."""

    meta: dict[str, Any]
    body: str
    body_line: int  # 1-based line on which the body starts


def parse_page(text: str, *, where: str = "") -> Page:
    """Split a page; one without frontmatter has empty meta. `ConfigError` carries the YAML line."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].rstrip("\r\n") != FENCE:
        return Page({}, text, 1)
    end = next((i for i, line in enumerate(lines[1:], 1) if line.rstrip("\r\n") == FENCE), None)
    if end is None:
        raise ConfigError("the frontmatter is never closed", where=where, hint="add a line with --- after the properties")
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        meta = yaml.load("".join(lines[1:end]), Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 2}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"the frontmatter isn't YAML: {problem}", where=f"{where}{line}", hint="quote the text with double quotes") from error
    if meta is None or meta == "":
        meta = {}
    if not isinstance(meta, dict):
        raise ConfigError("the frontmatter isn't a list of properties", where=where, hint="write one `name: value` a line")
    return Page(meta, "".join(lines[end + 1 :]), end + 2)


def quote(value: str) -> str:
    """A YAML double-quoted scalar on one line; the only way our own properties are written."""
    escaped = _UNSAFE.sub(lambda m: _ESCAPES.get(m.group()) or (f"\\u{ord(m.group()):04x}"), value)
    return f'"{escaped}"'


def dump_meta(meta: dict[str, str | int | float | list[str]]) -> str:
    """Flat properties as Obsidian shows them: quoted strings, bare numbers, block lists of quoted strings."""
    out = [FENCE]
    for key, value in meta.items():
        if isinstance(value, list):
            out.append(f"{key}:" if value else f"{key}: []")
            out.extend(f"  - {quote(item)}" for item in value)
        elif isinstance(value, str):
            out.append(f"{key}: {quote(value)}")
        else:
            out.append(f"{key}: {value}")
    out.append(FENCE)
    return "\n".join(out) + "\n"
