"""Registries: what is registered under a name, and who asks for that name, meet in a symbol for the entry.

`@kernels.register("flash")` and `kernels.get("flash")` stand in files that never import each other. The entry `kernels[flash]`
is a symbol that no source defines, so they meet whichever is read first; `kernels[*]` is for names known only when it runs.
"""

from __future__ import annotations

import re
from typing import Any

from kgagent.ingest.reading import Reading
from kgagent.ingest.scopes import Names, Value

HOLDER = re.compile(r"regist(?:ry|er|ries|rar)", re.IGNORECASE)
REGISTER = re.compile(r"register(?:_\w+)?\Z")
LOOKUP = re.compile(r"(?:get|create|build|make|lookup|look_up|resolve|new)(?:_\w+)?\Z")
KEY = re.compile(r"""[rRuU]?["']([\w:/-]+)["']\Z""")
ANY = "*"
MAX_CANDIDATES = 4


def holder_of(chain: str) -> tuple[str, str]:
    """(registry, method) of a chain such as `ops.kernel_registry.get`; ('', '') where it is no registry's."""
    holder, _, method = chain.rpartition(".")
    return (holder, method) if "(" not in holder and HOLDER.search(holder.rpartition(".")[2]) else ("", "")


def entries_of(reading: Reading, names: Names) -> list[list[Any]]:
    """[symbol, registry's targets, key, line, registered targets]; without registered targets it is a look-up."""
    found = []
    for scope, chain, key, registered, line in reading.entries:
        holder, method = holder_of(chain)
        holders = [[t.name, t.how] for t in names.static(scope, holder)]
        things = [[t.name, t.how] for t in names.value_targets(registered, scope)] if registered is not None else []
        if not holders or bool(things) != bool(REGISTER.match(method)) or len(holders) > MAX_CANDIDATES:
            continue
        found.append([scope.symbol, holders, key, line, things])
    return found


def key_in(text: Any, call: Any) -> str:
    """The first literal name a call is given; `*` where it is computed."""
    arguments = call.child_by_field_name("arguments")
    for child in arguments.named_children if arguments is not None else ():
        value = child.child_by_field_name("value") if child.type == "keyword_argument" else child
        if value.type == "comment":
            continue
        matched = KEY.match(text.of(value)) if value.type == "string" else None
        return matched.group(1) if matched else ANY
    return ANY


def registered_in(text: Any, call: Any) -> Value | None:
    """What `registry.register("name", f)` is given; None where the call itself decorates."""
    arguments = call.child_by_field_name("arguments")
    for child in arguments.named_children if arguments is not None else ():
        if child.type in ("identifier", "attribute"):
            return Value("name", text.chain(child))
    return None
