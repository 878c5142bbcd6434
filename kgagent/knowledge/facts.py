"""Facts as people write them: a sentence, then in parentheses where it holds and where to check it.

    - The MXU is 256 wide on v6e. (source: pkg:jax/_src/tpu_info.py::_get_tpu_info_impl)
    - A 512-cube block is fastest. (at: v5e, bf16 2048x2048x2048; value: 0.318 ms; measured: github:owner/repo@rev:path)

A fact nobody can check is an error: the graph refuses a claim without a citation, and so does the page.
"""

from __future__ import annotations

import re

from kgagent.errors import ConfigError
from kgagent.knowledge.records import Citation, Fact

_TAIL = re.compile(r"(?P<text>.+?)\s*\((?P<tail>(?:at|value|source|measured):\s.*)\)\s*$", re.DOTALL)
_PART = re.compile(r"(?:^|;\s+)(?=(?:at|value|source|measured):\s)")
_VALUE = re.compile(r"(?P<number>[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*(?P<unit>\S.*)?", re.IGNORECASE)
_CODE = re.compile(r"pkg:(?P<path>[\w./-]+)(?:::(?P<symbol>[\w.]+))?")
_HERE = re.compile(r"here:(?P<path>[\w./-]+)(?:::(?P<symbol>[\w.]+))?")
_PAPER = re.compile(r"arXiv:\d{4}\.\d{4,5}(?:v\d+)?(?:, .+)?")
_REPO = re.compile(r"github:[\w.-]+/[\w.-]+@[\w.-]+:(?P<path>[\w./-]+)(?:, .+)?")
_FORMS = "pkg:package/file.py::function, https://…, arXiv:2205.14135, github:owner/repo@rev:path, or here:path/in/this/checkout.py::name"


def parse_fact(text: str, *, where: str, line: int) -> Fact:
    """A fact from its list item; `ConfigError` says what is missing."""
    place = f"{where}:{line}"
    found = _TAIL.fullmatch(text)
    if found is None:
        raise ConfigError(f"a fact without a source: {text[:60]!r}", where=place, hint=f"end it with (source: …): {_FORMS}")
    at, value, unit, measured = "", None, "", False
    citations: list[Citation] = []
    for part in _PART.split(found["tail"]):
        if not part:
            continue
        key, _, content = part.partition(":")
        content = content.strip()
        if key == "at":
            at = content
        elif key == "value":
            number = _VALUE.fullmatch(content)
            if number is None:
                raise ConfigError(f"{content!r} isn't a number with a unit", where=place, hint="write (value: 0.318 ms; …)")
            value, unit = float(number["number"]), (number["unit"] or "").strip()
        else:
            measured = measured or key == "measured"
            citations.append(parse_citation(content, place=place))
    if not citations:
        raise ConfigError("a fact without a source", where=place, hint=f"add source: …, one of {_FORMS}")
    return Fact(found["text"].strip(), at, value, unit, measured, tuple(citations), line)


def parse_citation(text: str, *, place: str) -> Citation:
    """A source somebody can open, told apart by its form."""
    text = text.strip().strip("`<>")
    if code := _CODE.fullmatch(text):
        return Citation("code", text, code["path"], code["symbol"] or "")
    if here := _HERE.fullmatch(text):
        return Citation("here", text, here["path"], here["symbol"] or "")
    if re.fullmatch(r"https?://\S+", text):
        return Citation("url", text)
    if _PAPER.fullmatch(text):
        return Citation("paper", text)
    if repo := _REPO.fullmatch(text):
        return Citation("repo", text, repo["path"])
    raise ConfigError(f"can't tell what source this is: {text!r}", where=place, hint=f"write {_FORMS}")
