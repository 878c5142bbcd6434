"""What assignments, loops, patterns and lambdas bind, and which of it becomes a symbol of its own."""

from __future__ import annotations

import re
from typing import Any

from kgagent.ingest.imports import Imports
from kgagent.ingest.reading import LAMBDA, VALUE_CHARS
from kgagent.ingest.scopes import OPAQUE, Binding, Scope, Value
from kgagent.ingest.shapes import CLASS, CONSTANT, FIELD, MODULE

TABLE_NAME = re.compile(r"tun|block|tile|(?<![a-z])config", re.IGNORECASE)


class Bindings(Imports):
    """Handlers of everything that gives a name a value."""

    def assignment(self, node: Any, scope: Scope) -> None:
        left, right, note = node.child_by_field_name("left"), node.child_by_field_name("right"), node.child_by_field_name("type")
        value = self.text.value(right) if right is not None and left.type in ("identifier", "attribute") else OPAQUE
        owner = scope
        if left.type == "identifier":
            owner = self.assign_name(node, scope, self.text.of(left), value, right, note)
        elif left.type == "attribute":
            self.assign_attribute(left, scope, value)
        elif left.type == "subscript":
            owner = self.owner_of_item(left, scope)
            self.visit(left, owner)
        else:
            self.bind_pattern(left, scope)
        if note is not None:
            annotation = self.text.annotated(note)
            if annotation.kind != "opaque":
                self.out.roles.append((owner, annotation, node.start_point[0] + 1, "annotation"))
        if right is not None:
            self.visit_one(right, owner)

    def assign_name(self, node: Any, scope: Scope, name: str, value: Value, right: Any, note: Any) -> Scope:
        """Bind a name; at module and class level it is a symbol, whose own scope then reads the right-hand side."""
        if name == "__all__" and scope.kind == MODULE and right is not None:
            self.out.exported = re.findall(r"""["'](\w+)["']""", self.text.of(right))
        if scope.kind not in (MODULE, CLASS):
            annotation = self.text.annotated(note) if note is not None else None
            if annotation is not None and right is None:
                scope.bind(name, Binding("param", annotation=annotation, scope=scope))
            else:
                scope.bind(name, Binding("value", value=value, scope=scope, node=right))
            return scope
        qual = f"{scope.qual}.{name}" if scope.qual else name
        if qual in self.taken and (scope.kind != MODULE or scope.names.get(name)):
            scope.bind(name, Binding("value", value=value, scope=scope, node=right))
            return scope
        line = node.start_point[0] + 1
        default = " ".join(self.text.of(right).split()) if right is not None else ""
        if scope.kind == CLASS and note is not None:
            kind, type_text = FIELD, " ".join(self.text.of(note).split())
            data: dict[str, Any] = {"kind": "field", "type": type_text}
            if right is not None:
                data["default"] = default
            self.out.fields.setdefault(scope.qual, []).append((name, line, type_text, default))
            doc = self.field_comment(node)
        else:
            kind, doc = CONSTANT, self.field_comment(node) if scope.kind == CLASS else ""
            data = {"kind": "constant", "value": default if len(default) <= VALUE_CHARS else default[: VALUE_CHARS - 1] + "…"}
            if right is not None and right.type == "dictionary" and TABLE_NAME.search(name):
                data |= self.tuning_table(right)
        symbol, qual = self.define(scope, kind, name, node, doc, data)
        inner = Scope(LAMBDA, scope.qual, symbol, scope)
        self.out.scopes.append(inner)
        scope.bind(name, Binding("def", qual, value=value if value.kind == "name" else None, scope=scope, node=right))
        self.out.constants[qual] = (scope, value)
        return inner

    def tuning_table(self, node: Any) -> dict[str, Any]:
        """A dict of sizes by shape or chip: how many rows, and how they are keyed."""
        keys = [pair.child_by_field_name("key") for pair in node.named_children if pair.type == "pair"]
        if len(keys) < 2:
            return {}
        return {"table": {"rows": len(keys), "keyed_by": keys[0].type, "first_keys": [" ".join(self.text.of(key).split())[:80] for key in keys[:8]]}}

    def field_comment(self, node: Any) -> str:
        """A field's own words: the comment behind it, else those directly above it."""
        row = node.end_point[0]
        tail = self.lines[row][node.end_point[1] :].strip()
        if tail.startswith(b"#"):
            return str(tail.lstrip(b"# ").decode("utf-8", "replace"))
        above: list[str] = []
        row = node.start_point[0] - 1
        while row >= 0 and self.lines[row].strip().startswith(b"#"):
            above.append(self.lines[row].strip().lstrip(b"# ").decode("utf-8", "replace"))
            row -= 1
        return "\n".join(reversed(above))

    def assign_attribute(self, left: Any, scope: Scope, value: Value) -> None:
        """`self.x = …` gives the class an attribute; `f.x = …` is a read of f."""
        chain = self.text.chain(left)
        holder, _, name = chain.rpartition(".")
        method: Scope | None = scope
        while method is not None and not (method.self_name and method.self_name == holder):
            method = method.parent
        if method is None:
            self.visit_one(left.child_by_field_name("object"), scope)
            return
        owner = method.owner_class()
        if owner is not None and value.kind != "opaque":
            self.out.class_attributes.setdefault(owner.qual, {}).setdefault(name, []).append((value, scope))

    def owner_of_item(self, left: Any, scope: Scope) -> Scope:
        """`REGISTRY["x"] = f` at module level is read by REGISTRY, so that a walk from it finds f."""
        chain = self.text.chain(left.child_by_field_name("value"))
        bindings = scope.names.get(chain, ()) if scope.kind == MODULE else ()
        for binding in bindings:
            if binding.kind == "def":
                symbol = next((i for i, s in enumerate(self.out.symbols) if s.qual == binding.target), -1)
                if symbol >= 0 and self.out.symbols[symbol].kind == CONSTANT:
                    return scope_for(scope, symbol, self.out.scopes)
        return scope

    def bind_pattern(self, node: Any, scope: Scope) -> None:
        """Names in a pattern are bound to something unknown."""
        kind = node.type
        if kind == "identifier":
            scope.bind(self.text.of(node), Binding("value"))
        elif kind in ("attribute", "subscript"):
            self.visit(node, scope)
        else:
            for child in node.named_children:
                self.bind_pattern(child, scope)

    def augmented(self, node: Any, scope: Scope) -> None:
        left = node.child_by_field_name("left")
        if left.type == "identifier" and self.text.of(left) == "__all__" and self.out.exported is not None:
            self.out.exported += re.findall(r"""["'](\w+)["']""", self.text.of(node))
        self.visit(node, scope)

    def named(self, node: Any, scope: Scope) -> None:
        value = node.child_by_field_name("value")
        scope.bind(self.text.of(node.child_by_field_name("name")), Binding("value", value=self.text.value(value), scope=scope, node=value))
        self.visit_one(value, scope)

    def loop(self, node: Any, scope: Scope) -> None:
        self.bind_pattern(node.child_by_field_name("left"), scope)
        for child in node.named_children:
            if child != node.child_by_field_name("left"):
                self.visit_one(child, scope)

    def alias_target(self, node: Any, scope: Scope) -> None:
        self.bind_pattern(node, scope)

    def lambda_(self, node: Any, scope: Scope) -> None:
        inner = Scope(LAMBDA, scope.qual, scope.symbol, scope)
        self.out.scopes.append(inner)
        parameters = node.child_by_field_name("parameters")
        for child in parameters.named_children if parameters is not None else ():
            if child.type == "default_parameter":
                self.visit_one(child.child_by_field_name("value"), scope)
                child = child.child_by_field_name("name")
            self.bind_pattern(child, inner)
        self.visit_one(node.child_by_field_name("body"), inner)

    def type_alias(self, node: Any, scope: Scope) -> None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        self.assign_name(node, scope, self.text.of(left).partition("[")[0], self.text.annotated(right), right, None)


def scope_for(scope: Scope, symbol: int, scopes: list[Scope] | None = None) -> Scope:
    """The same names, read on behalf of another symbol."""
    made = Scope(LAMBDA, scope.qual, symbol, scope)
    if scopes is not None:
        scopes.append(made)
    return made
