"""Brackets and quotes of HLO text: where operands end, how attributes split."""

from __future__ import annotations

import re

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[(){}\[\]]', re.DOTALL)
_ATTRIBUTE = re.compile(r",?\s*([\w.\-]+)=")
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
    at, size = 0, len(tail)
    while at < size:
        found = _ATTRIBUTE.match(tail, at)
        if found is None:
            break
        start = at = found.end()
        depth = 0
        while at < size:
            char = tail[at]
            if char == '"':
                string = _TOKEN.match(tail, at)
                at = string.end() if string else size
                continue
            if char == "," and depth == 0:
                break
            step = _DEPTH.get(char, 0)
            depth += step
            at += 1
            if step:
                following = _TOKEN.search(tail, at) if depth > 0 else None
                if depth > 0:
                    at = following.start() if following else size
        out[found.group(1)] = tail[start:at].rstrip()
    return out
