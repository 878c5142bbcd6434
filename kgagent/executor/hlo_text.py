"""Optimized HLO as text to compare: what names and places a program carries is no difference in what it does."""

from __future__ import annotations

import re
from collections.abc import Mapping

_TABLES = re.compile(r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\s*\n(?:\d.*\n)*", re.M)
_METADATA = re.compile(r",? metadata=\{(?:[^{}\"]|\"[^\"]*\"|\{[^{}]*\})*\}")


def canonical(text: str) -> str:
    """The program without module name, source tables, metadata and the spelling of instruction names."""
    body = _METADATA.sub("", _TABLES.sub("", text))
    lines = [line.rstrip() for line in body.splitlines() if line.strip() and not line.startswith("HloModule")]
    names: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        return names.setdefault(match[0], f"%{len(names)}")

    return "\n".join(re.sub(r"%[\w.-]+", rename, line) for line in lines)


def fill(pattern: str, values: Mapping[str, object]) -> str:
    """A lane's HLO pattern with {seq} and the like filled in; other braces stay, they are HLO layouts and repetitions."""
    return re.sub(r"\{([a-z_]+)\}", lambda m: str(values[m[1]]) if m[1] in values else m[0], pattern)
