"""Identifiers as words: `flash_attention_kernelV2` is found by "flash", "attention", "kernel" and "v2"."""

from __future__ import annotations

import re

_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


def split_identifier(name: str) -> str:
    """Lowercase words of an identifier split on case, digits, `_` and `.`; repeated words kept once, in order."""
    return " ".join(dict.fromkeys(part.lower() for part in _PART.findall(name)))
