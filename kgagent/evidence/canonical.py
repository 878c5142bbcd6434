"""Canonical form of a module: names, ids and metadata out, backend_config in, locations in kernel bodies stripped.

Two modules with equal canonical text are the same program to the compiler's back end; a no-op also needs equal LLO.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kgagent.evidence.hlo import Computation, Instruction, Module
from kgagent.evidence.mosaic import body_of
from kgagent.objects import sha256_hex

_METADATA = re.compile(r", metadata=\{")
_BODY = re.compile(r'"body":\s*"[A-Za-z0-9+/=]+"')
_IDS = re.compile(r",?\s*\b(?:channel_id|id|original_value)=\d+")
_REFERENCE = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(r"\b(calls|to_apply|condition|body|true_computation|false_computation|select|scatter|comparator|called_computation)=([\w.\-]+)")


def canonical_text(module: Module) -> str:
    """The whole module, computations in the order they are first called from the entry."""
    order = _order(module)
    names = {name: f"c{n}" for n, name in enumerate(order)}
    header = re.sub(r"^HloModule\s+[^\s,]+,?\s*", "", module.header)
    blocks = [header] if header else []
    for name in order:
        blocks.append(f"{names[name]}:\n" + "\n".join(_lines(module.computations[name], names)))
    return "\n".join(blocks) + "\n"


def canonical_digest(module: Module) -> str:
    """SHA-256 of the canonical text."""
    return sha256_hex(canonical_text(module))


def _order(module: Module) -> list[str]:
    order: list[str] = []
    seen = {module.entry.name}
    queue = [module.entry.name]
    while queue:
        name = queue.pop(0)
        order.append(name)
        for instruction in module.computations[name].instructions:
            for _, callee in instruction.called:
                if callee in module.computations and callee not in seen:
                    seen.add(callee)
                    queue.append(callee)
    return order


def _lines(computation: Computation, names: Mapping[str, str]) -> list[str]:
    numbers = {instruction.name: f"i{n}" for n, instruction in enumerate(computation.instructions)}
    root = computation.root
    lines = []
    for instruction in computation.instructions:
        operands = instruction.operands
        args = ", ".join(numbers.get(name, name) for name in operands) if operands else instruction.args
        mark = "ROOT " if instruction is root else ""
        lines.append(f"{mark}{numbers[instruction.name]} = {instruction.shape} {instruction.opcode}({args}){tail(instruction, {**numbers, **names})}")
    return lines


def tail(instruction: Instruction, names: Mapping[str, str]) -> str:
    """The attributes without metadata and ids, references renamed, kernel bodies as digests of their text without locations."""
    text = instruction.tail
    found = _METADATA.search(text)
    if found:
        end = found.end() + len(instruction.metadata) + 1
        text = text[: found.start()] + text[end:]
    at = text.find(", backend_config=")
    attributes, config = (text, "") if at < 0 else (text[:at], text[at:])
    attributes = _IDS.sub("", attributes)
    attributes = _REFERENCE.sub(lambda m: names.get(m.group(1), m.group(0)), attributes)
    attributes = _CALLED.sub(lambda m: f"{m.group(1)}={names.get(m.group(2), m.group(2))}", attributes)
    body = body_of(instruction) if config else None
    if body is not None:
        config = _BODY.sub(f'"body":"{body.digest}"', config)
    return attributes + config
