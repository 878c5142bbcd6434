"""XLA and libtpu flags in source, and whether the installed libtpu knows them.

How that is known: libtpu is one shared library, and the names of its flags stand in it as strings that end with a NUL. A name
may be the tail of a longer string (linkers merge those), but never the tail of a longer word.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import mmap
import re
from dataclasses import dataclass
from pathlib import Path

from kgagent.workspace import Workspace, write_atomic

# With dashes any such word is a flag; without, only under prefixes that name nothing else in JAX source.
DASHED = re.compile(r"--((?:xla|libtpu|megascale|tpu)_[a-z0-9_]+)(?:=([^\s\"'\\,;)\]}]+))?")
BARE = re.compile(
    r"\A[\"']?((?:xla_(?:tpu|jf|sc|vf|gf|gpu|cpu|msa|mosaic|enable|disable|dump|force|allow|hlo|latency|llvm|backend_optimization)|megascale)_[a-z0-9_]+)[\"']?\Z"
)
# One expression a prefix, each beginning with a literal: over 630 MB that takes 0.9 s, one with alternatives 7 s.
IN_LIBRARY = tuple(re.compile(prefix + rb"[a-z0-9_]{3,}\0") for prefix in (b"xla_", b"tpu_", b"libtpu_", b"megascale_"))
WORD_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
KNOWN, UNKNOWN, MOVED, UNCHECKED = "known", "unknown", "moved", "unchecked"
PREFIX = re.compile(r"\Axla_(?:(?:tpu|jf|sc|vf|gf|gpu|cpu|msa|mosaic)_)?")


@dataclass(frozen=True, slots=True)
class Library:
    """The flag names an installed libtpu holds."""

    version: str
    names: frozenset[str]

    def status(self, name: str) -> tuple[str, str]:
        """(status, where it moved): a flag that only exists under another prefix has moved there."""
        if name in self.names:
            return KNOWN, ""
        stem = PREFIX.sub("", name)
        for prefix in ("xla_tpu_", "xla_", "xla_jf_", "xla_sc_", "xla_mosaic_", "xla_msa_"):
            if len(stem) > 8 and prefix + stem in self.names:
                return MOVED, prefix + stem
        return UNKNOWN, ""


def flags_in(text: str) -> list[tuple[str, str]]:
    """(name, value) of the flags a string literal or a line of shell sets or names."""
    found = [(name, value or "") for name, value in DASHED.findall(text)]
    bare = BARE.match(text)
    return found or ([(bare.group(1), "")] if bare else [])


def library(workspace: Workspace) -> Library | None:
    """The installed libtpu's names, remembered per version beside the graph; None where there is no libtpu."""
    spec = importlib.util.find_spec("libtpu")
    folder = next(iter(spec.submodule_search_locations or ()), None) if spec is not None else None
    path = Path(folder or "") / "libtpu.so"
    if folder is None or not path.is_file():
        return None
    try:
        version = importlib.metadata.version("libtpu")
    except importlib.metadata.PackageNotFoundError:
        version = "unversioned"
    cache = workspace.scratch / f"libtpu-flags-{version}-{path.stat().st_size}.json"
    if cache.is_file():
        return Library(version, frozenset(json.loads(cache.read_text(encoding="utf-8"))))
    with open(path, "rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = (match for pattern in IN_LIBRARY for match in pattern.finditer(data) if data[match.start() - 1] not in WORD_BYTES)
        names = {match.group()[:-1].decode("ascii") for match in found}
    cache.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(cache, json.dumps(sorted(names)).encode())
    return Library(version, frozenset(names))
