"""One pass over a file's syntax tree: definitions, calls, and calls that may launch kernels.

Nothing is resolved here; names may be defined after they are used.
"""

from __future__ import annotations

import json
from typing import Any

from kgagent.graph.words import split_identifier
from kgagent.ingest.bindings import Bindings, scope_for
from kgagent.ingest.reading import BODY_ENDINGS, BODY_NAME, LAMBDA, LAUNCH_KEYWORDS, LAUNCH_TAILS, RawSite, Reading
from kgagent.ingest.registries import ANY, LOOKUP, REGISTER, holder_of, key_in, registered_in
from kgagent.ingest.scopes import OPAQUE, Binding, Scope, Value
from kgagent.ingest.shapes import CLASS, FUNCTION, MODULE, REEXPORT, Symbol
from kgagent.ingest.surfaces import TAILS


class Walker(Bindings):
    """Fills a Reading; one per file."""

    def read(self, root: Any) -> Reading:
        doc = self.docstring(root)
        scope = Scope(MODULE, "", 0, None)
        self.out.scopes.append(scope)
        self.out.symbols.append(Symbol(-1, MODULE, "", 1, max(1, root.end_point[0] + 1), doc, split_identifier(self.module), '{"kind": "module"}'))
        self.visit(root, scope)
        self.reexports(scope)
        return self.out

    def reexports(self, scope: Scope) -> None:
        """`from m import X as X`, or an imported name in `__all__`: part of this module's interface, so a symbol of it."""
        lines = dict(self.out.renamed_to_itself)
        for name in self.out.exported or ():
            lines.setdefault(name, 1)
        for name, line in lines.items():
            bindings = scope.names.get(name, ())
            if name in self.taken or not bindings or bindings[0].kind != "import":
                continue
            data = json.dumps({"kind": "re-export", "of": bindings[0].target})
            self.out.symbols.append(Symbol(0, REEXPORT, name, line, line, "", split_identifier(name), data))
            self.out.scopes.append(Scope(LAMBDA, "", len(self.out.symbols) - 1, scope, uses={name: line}))

    def decorated(self, node: Any, scope: Scope) -> None:
        decorators = [child for child in node.named_children if child.type == "decorator"]
        definition = node.child_by_field_name("definition")
        if definition.type == "function_definition":
            self.function(definition, scope, decorators)
        else:
            self.klass(definition, scope, decorators)

    def decorators(self, nodes: list[Any], scope: Scope) -> list[str]:
        """Visit decorators where they are evaluated, and return their texts."""
        texts = []
        for node in nodes:
            expression = node.named_children[0]
            texts.append(" ".join(self.text.of(expression).split()))
            value = self.text.value(expression)
            self.out.roles.append((scope, value, expression.start_point[0] + 1, "decorator"))
            if expression.type == "call":
                arguments = expression.child_by_field_name("arguments")
                if arguments is not None:
                    self.visit(arguments, scope)
        return texts

    def function(self, node: Any, scope: Scope, decorators: list[Any] | None = None) -> None:
        name = self.text.of(node.child_by_field_name("name"))
        texts = self.decorators(decorators or [], scope)
        body = node.child_by_field_name("body")
        parameters = node.child_by_field_name("parameters")
        returns = node.child_by_field_name("return_type")
        data: dict[str, Any] = {"kind": "method" if scope.kind == CLASS else "function", "parameters": " ".join(self.text.of(parameters).split())}
        if returns is not None:
            data["returns"] = self.text.of(returns)
        if texts:
            data["decorators"] = texts
        first = (decorators[0] if decorators else node).start_point[0] + 1
        variant = next((tail for text in texts if (tail := text.rsplit(".", 1)[-1]) in ("overload", "setter", "deleter")), "")
        symbol, qual = self.define(scope, FUNCTION, name, node, self.docstring(body), data, line=first, variant=variant)
        if not variant:
            self.bind_definition(scope, name, qual, node)
        inner = Scope(FUNCTION, qual, symbol, scope)
        self.out.scopes.append(inner)
        if scope.kind == CLASS and "staticmethod" not in texts:
            inner.self_name = next((self.text.of(child) for child in parameters.named_children if child.type == "identifier"), "")
        self.read_parameters(parameters, inner, scope, qual)
        if returns is not None:
            value = self.text.annotated(returns)
            self.out.returns[qual] = (scope, value)
            self.out.roles.append((inner, value, returns.start_point[0] + 1, "annotation"))
        self.visit(body, inner)
        for decorator in decorators or ():
            expression = decorator.named_children[0]
            self.decorator_surface(expression, scope, symbol)
            self.decorator_entry(expression, scope, name)
            if expression.type == "call":
                self.decorator_site(expression, scope, qual)

    def bind_definition(self, scope: Scope, name: str, qual: str, node: Any) -> None:
        """Python's last definition wins; earlier ones stay as candidates only where a branch may have chosen them."""
        known = scope.names.get(name)
        if known and scope.kind == CLASS:
            known.clear()
        scope.bind(name, Binding("def", qual, node=node))

    def decorator_surface(self, expression: Any, scope: Scope, symbol: int) -> None:
        """`@jax.jit`, `@jax.jit(…)` and `@partial(jax.jit, …)` are surfaces of the function below them."""
        first = self.text.first_argument(expression) if expression.type == "call" else None
        chain = self.text.chain(expression.child_by_field_name("function") if expression.type == "call" else expression)
        if chain.rpartition(".")[2] == "partial" and first is not None:
            chain = self.text.chain(first)
        if chain.rpartition(".")[2] in TAILS:
            self.out.surfaces.append((scope, symbol, chain, expression, expression.start_point[0] + 1))

    def decorator_entry(self, expression: Any, scope: Scope, name: str) -> None:
        """`@registry.register("name")` and `@registry.register` make the definition below them an entry."""
        is_call = expression.type == "call"
        chain = self.text.chain(expression.child_by_field_name("function") if is_call else expression)
        if "egist" in chain and REGISTER.match(holder_of(chain)[1]):
            key = key_in(self.text, expression) if is_call else ANY
            self.out.entries.append((scope, chain, key, Value("name", name), expression.start_point[0] + 1))

    def decorator_site(self, call: Any, scope: Scope, qual: str) -> None:
        """`@pl.kernel(…)` and `@partial(pl.pallas_call, …)` launch the function below them."""
        callee = self.text.chain(call.child_by_field_name("function"))
        first = self.text.first_argument(call)
        form = "decorator"
        if callee.rsplit(".", 1)[-1] == "partial" and first is not None:
            callee, form = self.text.chain(first), "partial decorator"
        tail = callee.rsplit(".", 1)[-1]
        if tail in LAUNCH_TAILS or tail.startswith("emit_pipeline") or self.launch_keywords(call):
            body = Value("name", qual.rsplit(".", 1)[-1].partition("~")[0])
            self.out.sites.append(RawSite(scope, call, callee, call.start_point[0] + 1, call.end_point[0] + 1, form, body))

    def read_parameters(self, node: Any, inner: Scope, outer: Scope, qual: str) -> None:
        rows: list[tuple[str, int, str, Value]] = []
        for child in node.named_children:
            kind = child.type
            name_node, annotation, default = child, None, None
            if kind in ("typed_parameter", "typed_default_parameter", "default_parameter"):
                name_node = child.child_by_field_name("name") or child.named_children[0]
                annotation, default = child.child_by_field_name("type"), child.child_by_field_name("value")
            elif kind not in ("identifier", "list_splat_pattern", "dictionary_splat_pattern"):
                continue
            if name_node.type in ("list_splat_pattern", "dictionary_splat_pattern"):
                name_node = name_node.named_children[0]
                annotation = None
            name = self.text.of(name_node)
            note = self.text.annotated(annotation) if annotation is not None else OPAQUE
            value = self.text.value(default) if default is not None else None
            inner.bind(name, Binding("param", value=value, annotation=note if note.kind != "opaque" else None, scope=outer, node=default))
            rows.append((name, child.start_point[0] + 1, self.text.of(default) if default is not None else "", note))
            if annotation is not None and note.kind != "opaque":
                self.out.roles.append((inner, note, child.start_point[0] + 1, "annotation"))
            if default is not None:
                self.visit_one(default, outer)
        self.out.parameters[qual] = rows

    def klass(self, node: Any, scope: Scope, decorators: list[Any] | None = None) -> None:
        name = self.text.of(node.child_by_field_name("name"))
        texts = self.decorators(decorators or [], scope)
        body = node.child_by_field_name("body")
        bases = []
        superclasses = node.child_by_field_name("superclasses")
        for child in superclasses.named_children if superclasses is not None else ():
            if child.type == "keyword_argument":
                self.visit_one(child, scope)
                continue
            bases.append((self.text.annotated(child), " ".join(self.text.of(child).split()), child.start_point[0] + 1))
        data: dict[str, Any] = {"kind": "class"}
        if bases:
            data["bases"] = [text for _, text, _ in bases]
        if texts:
            data["decorators"] = texts
        first = (decorators[0] if decorators else node).start_point[0] + 1
        symbol, qual = self.define(scope, CLASS, name, node, self.docstring(body), data, line=first)
        self.bind_definition(scope, name, qual, node)
        for decorator in decorators or ():
            self.decorator_entry(decorator.named_children[0], scope, name)
        for value, _, line in bases:
            self.out.roles.append((scope_for(scope, symbol), value, line, "base"))
        self.out.bases[qual] = (scope, [value for value, _, _ in bases])
        inner = Scope(CLASS, qual, symbol, scope)
        self.out.scopes.append(inner)
        self.visit(body, inner)

    def return_(self, node: Any, scope: Scope) -> None:
        """What a function gives back: a maker of kernels returns one it defines inside."""
        if node.named_child_count == 1:
            value = self.text.value(node.named_children[0])
            where: Scope | None = scope
            while where is not None and where.kind == LAMBDA:
                where = where.parent
            if value.kind in ("name", "call", "choice") and where is not None:
                self.out.returned.setdefault(where.qual, []).append((value, scope))
        self.visit(node, scope)

    # calls

    def call(self, node: Any, scope: Scope) -> None:
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        chain = self.text.chain(function)
        line = node.start_point[0] + 1
        if chain:
            self.out.calls.append((scope, chain, line))
        if "(" in chain or not chain:
            self.visit_one(function.child_by_field_name("object") or function if function.type == "attribute" else function, scope)
        if arguments is None:
            return
        given = arguments.named_children
        tail = chain.rpartition(".")[2]
        if "egist" in chain and holder_of(chain)[0] and (node.parent is None or node.parent.type != "decorator"):
            registered = registered_in(self.text, node) if REGISTER.match(tail) else None
            if registered is not None or LOOKUP.match(tail):
                self.out.entries.append((scope, chain, key_in(self.text, node), registered, line))
        if tail in TAILS:
            self.out.surfaces.append((scope, scope.symbol, chain, node, line))
        elif tail == "defvjp":
            self.vjp(chain, arguments, scope, line)
        if chain and (tail in LAUNCH_TAILS or tail.startswith("emit_pipeline") or self.hands_callable(given)):
            site = RawSite(scope, node, chain, line, node.end_point[0] + 1, "call")
            parent = node.parent
            if self.text.first_argument(node) is None and parent is not None and parent.type == "call" and parent.child_by_field_name("function") == node:
                first = self.text.first_argument(parent)
                site.body = self.text.value(first) if first is not None else None
                site.form = "call of call"
            self.out.sites.append(site)
        self.visit_all(given, scope)

    def launch_keywords(self, call: Any) -> bool:
        arguments = call.child_by_field_name("arguments")
        children = arguments.named_children if arguments is not None else ()
        return any(c.type == "keyword_argument" and self.text.of(c.child_by_field_name("name")) in LAUNCH_KEYWORDS for c in children)

    def hands_callable(self, given: list[Any]) -> bool:
        """Whether a call is given a function: a local def, a partial, a lambda, or launch keywords."""
        for child in given:
            kind = child.type
            if kind == "keyword_argument":
                name = self.text.of(child.child_by_field_name("name"))
                if name in LAUNCH_KEYWORDS:
                    return True
                if not BODY_NAME.match(name):
                    continue
                child = child.child_by_field_name("value")
                kind = child.type
            if kind == "identifier":
                name = self.text.of(child)
                if name in self.callables or name.endswith(BODY_ENDINGS):
                    return True
            elif kind == "lambda":
                return True
            elif kind == "call":
                if self.text.of(child.child_by_field_name("function")).endswith("partial"):
                    return True
            elif kind == "attribute" and BODY_NAME.match(self.text.of(child.child_by_field_name("attribute"))):
                return True
        return False

    def vjp(self, chain: str, arguments: Any, scope: Scope, line: int) -> None:
        given = [self.text.chain(child) for child in arguments.named_children if child.type not in ("comment", "keyword_argument")]
        if len(given) >= 2:
            self.out.vjps.append((scope, chain.removesuffix(".defvjp"), given[0], given[1], line))


Walker.handlers = {
    "identifier": Walker.identifier,
    "attribute": Walker.attribute,
    "call": Walker.call,
    "keyword_argument": Walker.keyword_argument,
    "function_definition": Walker.function,
    "class_definition": Walker.klass,
    "decorated_definition": Walker.decorated,
    "assignment": Walker.assignment,
    "augmented_assignment": Walker.augmented,
    "named_expression": Walker.named,
    "for_statement": Walker.loop,
    "for_in_clause": Walker.loop,
    "as_pattern_target": Walker.alias_target,
    "lambda": Walker.lambda_,
    "type_alias_statement": Walker.type_alias,
    "import_statement": Walker.import_,
    "import_from_statement": Walker.import_from,
    "return_statement": Walker.return_,
    "comment": Walker.skip,
    "integer": Walker.skip,
    "string": Walker.string,
    "string_start": Walker.skip,
    "string_content": Walker.skip,
    "string_end": Walker.skip,
    "true": Walker.skip,
    "false": Walker.skip,
    "none": Walker.skip,
    "float": Walker.skip,
    "pass_statement": Walker.skip,
    "future_import_statement": Walker.skip,
    "global_statement": Walker.skip,
    "nonlocal_statement": Walker.skip,
}
