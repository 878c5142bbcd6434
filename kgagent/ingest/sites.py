"""Calls that may launch a kernel, turned from syntax into plain data while the tree is alive.

Which of them do launch is decided later, when the callee is known across files: a project's own wrapper looks like any call.
"""

from __future__ import annotations

from typing import Any

from kgagent.ingest.reading import BODY_NAME, LAMBDA, LAUNCH_KEYWORDS, RawSite, Reading
from kgagent.ingest.scopes import PARTIAL, TRANSFORMS, Binding, Names, Scope, Value
from kgagent.ingest.shapes import EXTERNAL_ROOTS, Argument, Site, Target, weakest

LAUNCH_TEXTS = LAUNCH_KEYWORDS | {
    "in_specs", "out_specs", "name", "interpret", "mesh", "input_output_aliases", "cost_estimate", "debug", "cluster", "num_threads", "backend", "metadata",
    "dimension_semantics", "core_axis_name", "grid_names", "kernel_name", "thread_name",
}  # fmt: skip
NAME_DEPTH = 3


class SiteReader:
    """Reads the sites of one file."""

    def __init__(self, reading: Reading, names: Names) -> None:
        self.reading, self.names, self.text = reading, names, reading.text

    def read(self, raw: RawSite) -> Site | None:
        """The site as data; None where nothing callable is handed over and the callee is no launch."""
        callee = self.names.resolve(raw.scope, raw.callee)
        arguments: list[Argument] = []
        texts: dict[str, str] = {}
        rests: dict[str, list[str]] = {}
        position = 0
        node_arguments = raw.node.child_by_field_name("arguments")
        skip_first = raw.form == "partial decorator"
        for child in node_arguments.named_children:
            if child.type == "comment":
                continue
            if child.type == "keyword_argument":
                name = self.text.of(child.child_by_field_name("name"))
                value = child.child_by_field_name("value")
                if name in LAUNCH_TEXTS:
                    texts[name] = self.text_of(value, raw.scope)
                    rests[name] = self.names_behind(value, raw.scope)
                elif self.callable_looking(value):
                    arguments.append(self.argument(name, self.text.value(value), self.text.of(value), raw.scope, raw.node))
                continue
            if child.type in ("list_splat", "dictionary_splat"):
                position += 1
                continue
            if skip_first:
                skip_first = False
                continue
            if self.callable_looking(child):
                arguments.append(self.argument(position, self.text.value(child), self.text.of(child), raw.scope, raw.node))
            position += 1
        form = raw.form
        if form == "call of call" and any(isinstance(a.slot, str) and BODY_NAME.match(a.slot) for a in arguments):
            form = "call"  # `launch(kernel=body)(x)`: the second call hands over arrays
        elif raw.body is not None:
            via = "decorator" if "decorator" in form else "call"
            known = self.argument(0, raw.body, raw.body.text, raw.scope, None if via == "decorator" else raw.node)
            arguments = [known._replace(via=(via, *known.via))]
        if texts:
            specs = self.block_specs(node_arguments, raw.scope)
            if specs:
                texts["block_specs"] = "\n".join(specs)
        if not arguments and not texts:
            return None
        return Site(raw.scope.symbol, callee, raw.callee, raw.line, raw.line_end, tuple(arguments), texts, rests, form)

    def callable_looking(self, node: Any) -> bool:
        return node.type in ("identifier", "attribute", "call", "lambda", "conditional_expression", "list", "parenthesized_expression")

    def argument(self, slot: int | str, value: Value, text: str, scope: Scope, node: Any) -> Argument:
        targets = self.targets_at(value, scope, node)
        function, parameter = self.names.parameter_of(scope, value)
        via = self.via(value, scope)
        if value.kind == "lambda" and value.parts:
            # `lambda *refs: body(*refs)` stands for body; one that calls an operation is a body of its own.
            called = self.names.value_targets(value.parts[0], scope)
            targets = tuple(Target(name, "inferred") for name, _ in called if not name.startswith(EXTERNAL_ROOTS))
        return Argument(slot, targets, via, " ".join(text.split()), f"{function}:{parameter}" if parameter else "")

    def targets_at(self, value: Value, scope: Scope, node: Any) -> tuple[Target, ...]:
        """What a value may stand for at a place: of a variable's assignments only those that reach it."""
        if value.kind == "name" and "." not in value.text and node is not None:
            bindings = self.reaching(value.text, scope, node)
            if bindings is not None:
                found: dict[str, str] = {}
                for binding in bindings:
                    if binding.kind == "value" and binding.value is not None:
                        reached = [Target(n, weakest(h, "inferred")) for n, h in self.targets_at(binding.value, binding.scope or scope, binding.node)]
                    else:
                        reached = list(self.names.follow(scope, binding, False))
                    for name, how in reached:
                        found.setdefault(name, how)
                return tuple(Target(name, "candidate" if len(found) > 1 else how) for name, how in found.items())
        if value.kind == "call" and value.parts and any(t.name in PARTIAL or t.name in TRANSFORMS for t in self.names.resolve(scope, value.text)):
            return tuple(Target(n, weakest(h, "inferred")) for n, h in self.targets_at(value.parts[0], scope, node))
        return self.names.value_targets(value, scope)

    def reaching(self, name: str, scope: Scope, node: Any) -> list[Binding] | None:
        """The bindings of a local name that may hold at a node: the last one sure to have run, and branches after it.

        None where that can't be told: a name of an outer scope, or one bound without a node.
        """
        local = scope
        while local.kind == LAMBDA and name not in local.names and local.parent is not None:
            local = local.parent
        bindings = local.names.get(name, [])
        if len(bindings) < 2 or any(b.node is None for b in bindings):
            return None
        around = blocks_around(node)
        before = sorted((b for b in bindings if b.node.start_byte < node.start_byte and not holds(b.node, node)), key=lambda b: b.node.start_byte)
        sure = [i for i, b in enumerate(before) if blocks_around(b.node)[0] in around]
        return before[sure[-1] :] if sure else None

    def via(self, value: Value, scope: Scope, depth: int = 0) -> tuple[str, ...]:
        """The forms between the call and the function: partial, variable, lambda, choice, …"""
        if depth > 4:
            return ()
        if value.kind == "call":
            if value.parts and any(t.name in PARTIAL or t.name in TRANSFORMS for t in self.names.resolve(scope, value.text)):
                return ("partial" if "partial" in value.text else "transform", *self.via(value.parts[0], scope, depth + 1))
            return ("call",)
        if value.kind in ("choice", "list", "lambda"):
            return (value.kind,)
        if value.kind == "name" and "." not in value.text:
            where = self.names.is_bound(scope, value.text)
            first = where.names[value.text][0] if where is not None else None
            if first is not None and first.kind == "value" and first.value is not None:
                return ("variable", *self.via(first.value, first.scope or scope, depth + 1))
            if first is not None and first.kind == "param":
                return ("parameter",)
            if first is not None and first.kind == "def" and where is not None and first.target in self.reading.constants:
                owner, known = self.reading.constants[first.target]
                return ("variable", *self.via(known, owner, depth + 1))
        return ()

    def binding_nodes(self, chain: str, scope: Scope) -> list[tuple[Any, Scope]]:
        """What was assigned to a plain local name; [] for anything else."""
        if "." in chain:
            return []
        where = self.names.is_bound(scope, chain)
        bindings: list[Binding] = where.names[chain] if where is not None else []
        return [(b.node, b.scope or scope) for b in bindings if b.node is not None and b.kind != "def"]

    def text_of(self, node: Any, scope: Scope) -> str:
        """An argument's source; a variable's is followed by what was assigned to it."""
        own = self.text.of(node)
        if node.type == "identifier":
            assigned = [self.text.of(value) for value, _ in self.binding_nodes(own, scope)]
            return own + "".join(f" = {text}" for text in dict.fromkeys(assigned))
        return own

    def names_behind(self, node: Any, scope: Scope, depth: int = 0) -> list[str]:
        """Absolute names an expression rests on, variables and parameter annotations followed a few steps."""
        found: dict[str, None] = {}
        for chain in dict.fromkeys(self.text.chains_in(node)):
            for target in self.names.resolve(scope, chain):
                found.setdefault(target.name)
            where = self.names.is_bound(scope, chain.partition(".")[0])
            if where is not None and depth < NAME_DEPTH:
                for binding in where.names[chain.partition(".")[0]]:
                    if binding.annotation is not None:
                        for target in self.names.value_targets(binding.annotation, binding.scope or scope):
                            found.setdefault(target.name)
                    if binding.node is not None and binding.kind in ("value", "param"):
                        for name in self.names_behind(binding.node, binding.scope or scope, depth + 1):
                            found.setdefault(name)
        return list(found)

    def block_specs(self, node: Any, scope: Scope) -> list[str]:
        """Every BlockSpec written in the call or in the variables it names, with its index map's text."""
        seen: dict[str, None] = {}
        nodes = [(node, scope)]
        for chain in dict.fromkeys(self.text.chains_in(node)):
            nodes += self.binding_nodes(chain, scope)
        for each, _ in nodes:
            for call in self.text.calls_in(each, "BlockSpec"):
                seen.setdefault(" ".join(self.text.of(call).split()))
        return list(seen)


def blocks_around(node: Any) -> list[int]:
    """Ids of the blocks a node stands in, innermost first."""
    found = []
    while node is not None:
        if node.type in ("block", "module"):
            found.append(node.id)
        node = node.parent
    return found


def holds(outer: Any, inner: Any) -> bool:
    return bool(outer.start_byte <= inner.start_byte and inner.end_byte <= outer.end_byte)
