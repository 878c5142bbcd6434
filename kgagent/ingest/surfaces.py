"""Framework surfaces: how a function is jitted, sharded, scanned or checkpointed, read off the call or decorator that does it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from kgagent.ingest.reading import Reading
from kgagent.ingest.scopes import Names
from kgagent.ingest.shapes import Symbol

TAILS = frozenset({"jit", "pjit", "shard_map", "scan", "checkpoint", "remat", "pmap", "vmap", "custom_vjp", "custom_jvp", "call_jax", "jax_jit", "assume_pure"})
API = re.compile(r"(?:jax|flax|torchax|torch_xla)(?:\.\w+)*\.(?:" + "|".join(sorted(TAILS)) + r")\Z")
KEYWORDS = frozenset(
    {
        "static_argnums", "static_argnames", "donate_argnums", "donate_argnames", "in_shardings", "out_shardings", "mesh", "in_specs", "out_specs",
        "check_vma", "check_rep", "axis_names", "length", "unroll", "reverse", "policy", "prevent_cse", "nondiff_argnums", "nondiff_argnames",
        "in_axes", "out_axes", "axis_name", "spmd_axis_name", "variable_axes", "split_rngs", "concrete", "compiler_options",
    }
)  # fmt: skip
TEXT_CHARS = 300


def with_surfaces(reading: Reading, names: Names) -> list[Symbol]:
    """The file's symbols, those with a surface carrying it in their data: api, line, and the keywords that matter."""
    found: dict[int, list[dict[str, Any]]] = {}
    for scope, symbol, chain, node, line in reading.surfaces:
        api = next((t.name for t in names.resolve(scope, chain) if API.match(t.name)), "")
        if api:
            record: dict[str, Any] = {"api": api, "line": line}
            arguments = keywords_of(reading, node)
            if arguments:
                record["arguments"] = arguments
            if record not in found.setdefault(symbol, []):
                found[symbol].append(record)
    symbols = list(reading.symbols)
    for index, records in found.items():
        data = json.loads(symbols[index].data)
        data["surfaces"] = records
        symbols[index] = symbols[index]._replace(data=json.dumps(data, ensure_ascii=False))
    return symbols


def keywords_of(reading: Reading, node: Any) -> dict[str, str]:
    """The surface's own keywords with their source text; none for a bare `@jax.jit`."""
    arguments = node.child_by_field_name("arguments") if node.type == "call" else None
    found = {}
    for child in named(arguments):
        if child.type == "keyword_argument":
            name = reading.text.of(child.child_by_field_name("name"))
            if name in KEYWORDS:
                text = " ".join(reading.text.of(child.child_by_field_name("value")).split())
                found[name] = text if len(text) <= TEXT_CHARS else text[: TEXT_CHARS - 1] + "…"
    return found


def named(node: Any) -> Sequence[Any]:
    return node.named_children if node is not None else ()
