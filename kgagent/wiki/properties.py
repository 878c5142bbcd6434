"""Our own properties in a page's frontmatter, spliced as text so that everybody else's stay byte for byte.

Obsidian rewrites quoting when somebody edits properties, so a hash of the values, not of the text, tells whether ours were edited.
`tags` and `aliases` are given when a page is made and belong to the person from then on.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from kgagent.frontmatter import FENCE, Page, dump_meta
from kgagent.objects import canonical_json

Properties = dict[str, str | int | float | list[str]]

SEEDS = ("tags", "aliases")
HASH = "kg_hash"
# Every property kgagent writes, each with one type in the whole vault.
OWN = (
    "id", "kind", "title", "lane", "status", "verdict", "outcome", "speedup", "speedup_low", "speedup_high", "over_reference", "noise_floor_pct",
    "pairs", "frontier", "device", "chip", "topology", "jax", "label", "backend", "path", "body", "expected_gain", "cost_minutes", "prior",
    "temp_mib", "metric", "locator", "revision", "files", "kernels",
)  # fmt: skip
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_KEY = re.compile(r"""^["']?([A-Za-z_][\w-]*)["']?[ \t]*:(?=[ \t\r\n]|$)""")


def _hash(values: dict[str, Any], names: tuple[str, ...]) -> str:
    known = {name: values[name] if isinstance(values[name], list) else str(values[name]) for name in names if name in values}
    return hashlib.sha256(canonical_json(known).encode()).hexdigest()[:16]


def new_head(own: Properties, seeds: Properties) -> str:
    """The frontmatter of a page that doesn't exist yet."""
    return _dump({**own, **seeds, HASH: f"{_hash(own, OWN)}-{_hash(seeds, SEEDS)}"})


def own_intact(page: Page) -> bool:
    """Whether our properties are as we wrote them."""
    return str(page.meta.get(HASH, "")).partition("-")[0] == _hash(page.meta, OWN)


def unclaimed(page: Page, own: Properties) -> bool:
    """Whether a page without our hash holds no value of ours that would be changed."""
    return HASH not in page.meta and all(str(page.meta[name]) == str(own[name]) for name in OWN if name in page.meta and name in own)


def only_ours(page: Page) -> bool:
    """Whether nobody added or changed any property."""
    return own_intact(page) and str(page.meta.get(HASH, "")).partition("-")[2] == _hash(page.meta, SEEDS) and set(page.meta) <= {*OWN, *SEEDS, HASH}


def splice(text: str, page: Page, own: Properties) -> str:
    """The text with our properties brought up to date; what isn't ours is not moved."""
    if _hash(page.meta, OWN) == _hash(own, OWN):
        return text
    newline = "\r\n" if "\r\n" in text[: text.find("\n") + 1] else "\n"
    lines = text.splitlines(keepends=True)
    end = next(i for i, line in enumerate(lines[1:], 1) if line.rstrip("\r\n") == FENCE)
    seeds = str(page.meta.get(HASH, "")).partition("-")[2]
    wanted = {**own, HASH: f"{_hash(own, OWN)}-{seeds}"}
    out, skipping = [lines[0]], False
    for line in lines[1:end]:
        match = _KEY.match(line)
        if match is not None:
            name = match.group(1)
            value = wanted.pop(name, None)
            current = value is not None and name != HASH and _hash(page.meta, (name,)) == _hash(own, (name,))
            skipping = (name in OWN or name == HASH) and not current
            if value is not None and not current:
                out.append(_property(name, value, newline))
        elif line.startswith("#"):
            skipping = False
        if not skipping:
            out.append(line)
    out.extend(_property(name, value, newline) for name, value in wanted.items())
    return "".join([*out, *lines[end:]])


def _property(name: str, value: str | int | float | list[str], newline: str) -> str:
    inner = _dump({name: value}).split("\n")[1:-2]
    return "".join(line + newline for line in inner)


def _dump(values: Properties) -> str:
    """Frontmatter whose quoted strings hold no character that YAML forbids or a line reader would split at."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", dump_meta(values))
