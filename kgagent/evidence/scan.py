"""Brackets and quotes of HLO text: where operands end, how attributes split."""

from __future__ import annotations

import re

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[(){}\[\]]', re.DOTALL)
_STOP = re.compile(r'"(?:[^"\\]|\\.)*"|[,(){}\[\]]', re.DOTALL)
_DEPTH = {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}
_PARENS = re.compile(r"[()]")


def balanced(text: str) -> bool:
    """Whether every bracket outside quotes is closed (`->` and `[start:end)` ranges don't occur where this is asked)."""
    depth = 0
    for token in _TOKEN.findall(text):
        depth += _DEPTH.get(token, 0)
    return depth == 0


def close_paren(text: str, start: int) -> int:
    """Offset of the `)` that closes what was opened just before `start`; the end of the text if none does."""
    end = text.find(")", start)
    if end < 0:
        return len(text)
    if text.find("(", start, end) < 0:
        return end
    depth = 1
    for found in _PARENS.finditer(text, start):
        depth += 1 if found.group() == "(" else -1
        if depth == 0:
            return found.start()
    return len(text)


def quoted(text: str) -> str:
    """The inside of a printed string, unescaped."""
    return text.replace('\\"', '"').replace("\\'", "'").replace("\\\\", "\\") if "\\" in text else text


def split_attributes(tail: str) -> dict[str, str]:
    """`, a=1, b={x, y}, c="s"` as {a: "1", b: "{x, y}", c: '"s"'}; values end at a comma outside brackets and quotes."""
    out: dict[str, str] = {}
    depth = start = 0
    for found in _STOP.finditer(tail):
        mark = found.group()
        if mark == ",":
            if depth == 0:
                _attribute(tail[start : found.start()], out)
                start = found.end()
        elif mark in _DEPTH:
            depth += _DEPTH[mark]
    _attribute(tail[start:], out)
    return out


def split_top(text: str) -> list[str]:
    """Parts between commas outside brackets."""
    if "[" not in text and "(" not in text:
        return text.split(",")
    parts, depth, start = [], 0, 0
    for found in _STOP.finditer(text):
        mark = found.group()
        if mark == "," and depth == 0:
            parts.append(text[start : found.start()])
            start = found.end()
        elif mark in _DEPTH:
            depth += _DEPTH[mark]
    parts.append(text[start:])
    return parts


def _attribute(text: str, out: dict[str, str]) -> None:
    name, equals, value = text.partition("=")
    if equals:
        out[name.strip()] = value.rstrip()
