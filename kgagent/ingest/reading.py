"""What one pass over a file's syntax tree leaves: plain lists, and nodes only where a launch must look at them again."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from kgagent.ingest.expressions import Text
from kgagent.ingest.scopes import Scope, Value
from kgagent.ingest.shapes import Symbol

LAMBDA = "l"
LAUNCH_TAILS = ("pallas_call", "kernel", "core_map")
LAUNCH_KEYWORDS = frozenset({"grid", "grid_spec", "out_shape", "out_type", "scratch_shapes", "scratch_types", "compiler_params"})
BODY_ENDINGS = ("kernel", "body", "fn", "fun", "func")  # a first look at every argument of every call, so kept cheap
BODY_NAME = re.compile(r"(?:\w*_)?(?:kernel|body|fn|fun|func)\Z|f\Z")
TUNABLE = re.compile(
    r"block_(?:q|k|kv|m|n|d|b|c|h|s|t|v|f|size|sizes|rows|cols|len|bytes|batch|seq|heads?|tokens|vocab|major|minor|compute)(?:_\w+)?\Z|"
    r"b(?:q|k|kv|m|n)(?:_(?:compute|sz|size|csz|mm|\d+))*\Z|t(?:m|n|k|q|kv)\Z|til(?:e|ing)_(?:m|n|k|q|kv|b|c|h|s|t|v|size|sizes|rows|cols)(?:_\w+)?\Z|"
    r"(?:\w+_)?(?:block|tile|chunk|page)_sizes?\Z|(?:block|tile)_?(?:sizes?|shape)\Z|num_(?:stages|warps|compute_wgs)\Z|num_\w+_per_(?:block|tile)\Z|"
    r"(?:\w+_)?(?:q|k|kv|m|n)_(?:block|tile|chunk)(?:_size)?\Z|pages_per_\w*block\Z"
)
NOT_TUNABLE = re.compile(r"\w*(?:_idx|_index|_indices|_id|_ids|_refs?|_specs?|_maps?|_tables?|_info|_offsets?|_starts?|_masks?)\Z")
VALUE_CHARS = 160  # a constant's text kept for reading; the file holds the rest


@dataclass(slots=True)
class RawSite:
    """A call that may launch, with its nodes while they live."""

    scope: Scope
    node: Any
    callee: str
    line: int
    line_end: int
    form: str
    body: Value | None = None  # the decorated function, or the argument of `pl.kernel(…)(body)`


@dataclass(slots=True)
class Reading:
    """All that one pass read off a file."""

    module: str
    text: Text
    symbols: list[Symbol] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)
    calls: list[tuple[Scope, str, int]] = field(default_factory=list)
    roles: list[tuple[Scope, Value, int, str]] = field(default_factory=list)  # bases, decorators, annotations
    imports: list[tuple[int, str, int]] = field(default_factory=list)  # symbol, dotted, line
    stars: list[str] = field(default_factory=list)
    exported: list[str] | None = None
    renamed_to_itself: dict[str, int] = field(default_factory=dict)  # `from m import X as X`: name → line
    sites: list[RawSite] = field(default_factory=list)
    class_attributes: dict[str, dict[str, list[tuple[Value, Scope]]]] = field(default_factory=dict)
    bases: dict[str, tuple[Scope, list[Value]]] = field(default_factory=dict)
    returns: dict[str, tuple[Scope, Value]] = field(default_factory=dict)
    returned: dict[str, list[tuple[Value, Scope]]] = field(default_factory=dict)
    parameters: dict[str, list[tuple[str, int, str, Value]]] = field(default_factory=dict)  # qual → name, line, default text, annotation
    fields: dict[str, list[tuple[str, int, str, str]]] = field(default_factory=dict)  # class → name, line, type, default
    constants: dict[str, tuple[Scope, Value]] = field(default_factory=dict)
    flags: list[tuple[int, str, str, int]] = field(default_factory=list)  # symbol, name, value, line
    surfaces: list[tuple[Scope, int, str, Any, int]] = field(default_factory=list)  # where, whose symbol, callee, node, line
    entries: list[tuple[Scope, str, str, Value | None, int]] = field(default_factory=list)  # where, registry's method, key, what is registered, line
    vjps: list[tuple[Scope, str, str, str, int]] = field(default_factory=list)
