"""One pass over a file's syntax tree: definitions, bindings, calls, reads, and calls that may launch kernels.

Recursion over named nodes with a table of handlers: measured, it costs less than a tree-sitter query that captures as much.
Nothing is resolved here; names may be defined after they are used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kgagent.graph.words import split_identifier
from kgagent.ingest.expressions import Text, docstring_of
from kgagent.ingest.scopes import OPAQUE, Binding, Scope, Value
from kgagent.ingest.shapes import CLASS, CONSTANT, FIELD, FUNCTION, MODULE, Symbol

LAMBDA = "l"
LAUNCH_TAILS = ("pallas_call", "kernel", "core_map")
LAUNCH_KEYWORDS = frozenset({"grid", "grid_spec", "out_shape", "out_type", "scratch_shapes", "scratch_types", "compiler_params"})
BODY_NAMES = ("kernel", "body", "_fn", "fun")
TUNABLE = re.compile(
    r"(?:\w+_)?(?:block|tile|chunk)(?:_?(?:size|sizes|len|shape|sizes))?(?:_\w+)?\Z|b(?:q|k|kv|m|n)(?:_\w+)?\Z|t(?:m|n|k)\Z|"
    r"num_(?:stages|warps|compute_wgs|kv_pages_per_block|queries_per_block)\Z|block_\w+\Z|tile_\w+\Z|\w+_(?:block_size|tile_size|pages_per_compute_block)\Z"
)
_DEFS = re.compile(rb"\bdef (\w+)")
_PARTIALS = re.compile(rb"^[ \t]*(\w+) *= *(?:\w+\.)*(?:partial\(|lambda\b)", re.MULTILINE)
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
    sites: list[RawSite] = field(default_factory=list)
    class_attributes: dict[str, dict[str, list[tuple[Value, Scope]]]] = field(default_factory=dict)
    bases: dict[str, tuple[Scope, list[Value]]] = field(default_factory=dict)
    returns: dict[str, tuple[Scope, Value]] = field(default_factory=dict)
    parameters: dict[str, list[tuple[str, int, str, Value]]] = field(default_factory=dict)  # qual → name, line, default text, annotation
    fields: dict[str, list[tuple[str, int, str, str]]] = field(default_factory=dict)  # class → name, line, type, default
    constants: dict[str, tuple[Scope, Value]] = field(default_factory=dict)
    vjps: list[tuple[Scope, str, str, str, int]] = field(default_factory=list)


class Walker:
    """Fills a Reading; one per file."""

    def __init__(self, source: bytes, module: str, is_package: bool) -> None:
        self.text = Text(source)
        self.module = module
        self.package = module if is_package else module.rpartition(".")[0]
        self.out = Reading(module, self.text)
        self.lines = source.split(b"\n")
        self.callables = {name.decode() for name in _DEFS.findall(source)} | {name.decode() for name in _PARTIALS.findall(source)}
        self.taken: dict[str, int] = {}

    def read(self, root: Any) -> Reading:
        doc = self.docstring(root)
        scope = Scope(MODULE, "", 0, None)
        self.out.scopes.append(scope)
        self.out.symbols.append(Symbol(-1, MODULE, "", 1, max(1, root.end_point[0] + 1), doc, split_identifier(self.module), '{"kind": "module"}'))
        self.visit(root, scope)
        return self.out

    def visit(self, node: Any, scope: Scope) -> None:
        for child in node.named_children:
            handler = HANDLERS.get(child.type)
            if handler is not None:
                handler(self, child, scope)
            elif child.child_count:
                self.visit(child, scope)

    def visit_one(self, node: Any, scope: Scope) -> None:
        handler = HANDLERS.get(node.type)
        if handler is not None:
            handler(self, node, scope)
        else:
            self.visit(node, scope)

    def skip(self, node: Any, scope: Scope) -> None:
        """Comments and such: nothing to read."""

    # names

    def identifier(self, node: Any, scope: Scope) -> None:
        scope.uses.setdefault(self.text.of(node), node.start_point[0] + 1)

    def attribute(self, node: Any, scope: Scope) -> None:
        chain = self.text.chain(node)
        if chain and "(" not in chain:
            scope.uses.setdefault(chain, node.start_point[0] + 1)
        else:
            self.visit_one(node.child_by_field_name("object"), scope)

    def keyword_argument(self, node: Any, scope: Scope) -> None:
        self.visit_one(node.child_by_field_name("value"), scope)

    # definitions

    def define(self, scope: Scope, kind: str, name: str, node: Any, doc: str, data: dict[str, Any], *, line: int = 0) -> tuple[int, str]:
        """A new symbol; a repeated name gets `~2`, so that each definition keeps its own lines."""
        qual = f"{scope.qual}.{name}" if scope.qual else name
        count = self.taken.get(qual, 0) + 1
        self.taken[qual] = count
        if count > 1:
            qual = f"{qual}~{count}"
        start = line or node.start_point[0] + 1
        row = Symbol(scope.symbol, kind, qual, start, max(start, node.end_point[0] + 1), doc, split_identifier(name), json.dumps(data, ensure_ascii=False))
        self.out.symbols.append(row)
        return len(self.out.symbols) - 1, qual

    def docstring(self, body: Any) -> str:
        for child in body.named_children:
            if child.type == "comment":
                continue
            if child.type == "expression_statement" and child.named_child_count and child.named_children[0].type == "string":
                return docstring_of(self.text.of(child.named_children[0]))
            return ""
        return ""

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
        symbol, qual = self.define(scope, FUNCTION, name, node, self.docstring(body), data, line=first)
        if not any(text.rsplit(".", 1)[-1] in ("overload", "setter", "deleter") for text in texts):
            self.bind_definition(scope, name, qual)
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
            if expression.type == "call":
                self.decorator_site(expression, scope, qual)

    def bind_definition(self, scope: Scope, name: str, qual: str) -> None:
        """Python's last definition wins; earlier ones stay as candidates only where a branch may have chosen them."""
        known = scope.names.get(name)
        if known and scope.kind == CLASS:
            known.clear()
        scope.bind(name, Binding("def", qual))

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
        self.bind_definition(scope, name, qual)
        for value, _, line in bases:
            self.out.roles.append((scope_for(scope, symbol), value, line, "base"))
        self.out.bases[qual] = (scope, [value for value, _, _ in bases])
        inner = Scope(CLASS, qual, symbol, scope)
        self.out.scopes.append(inner)
        self.visit(body, inner)

    # bindings

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
        if qual in self.taken:
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
        symbol, qual = self.define(scope, kind, name, node, doc, data)
        inner = Scope(LAMBDA, scope.qual, symbol, scope)
        self.out.scopes.append(inner)
        scope.bind(name, Binding("def", qual, value=value if value.kind == "name" else None, scope=scope, node=right))
        self.out.constants[qual] = (scope, value)
        return inner

    def field_comment(self, node: Any) -> str:
        """A field's own words: the comment behind it, else those directly above it."""
        row = node.end_point[0]
        tail = self.lines[row][node.end_point[1] :].strip()
        if tail.startswith(b"#"):
            return tail.lstrip(b"# ").decode("utf-8", "replace")
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

    # imports

    def import_(self, node: Any, scope: Scope) -> None:
        line = node.start_point[0] + 1
        for child in node.named_children:
            if child.type == "aliased_import":
                dotted, name = self.text.of(child.child_by_field_name("name")), self.text.of(child.child_by_field_name("alias"))
                scope.bind(name, Binding("import", dotted, "exact" if name == dotted else "alias"))
                self.out.imports.append((scope.symbol, dotted, line))
            elif child.type == "dotted_name":
                dotted = self.text.of(child)
                top = dotted.partition(".")[0]
                if not any(b.kind == "import" and b.target == top for b in scope.names.get(top, ())):
                    scope.bind(top, Binding("import", top))
                self.out.imports.append((scope.symbol, dotted, line))

    def import_from(self, node: Any, scope: Scope) -> None:
        line = node.start_point[0] + 1
        origin = node.child_by_field_name("module_name")
        module = self.absolute_module(self.text.of(origin))
        for child in node.named_children:
            if child == origin or child.type == "comment":
                continue
            if child.type == "wildcard_import":
                self.out.stars.append(module)
                self.out.imports.append((scope.symbol, module, line))
                continue
            name = self.text.of(child.child_by_field_name("name") if child.type == "aliased_import" else child)
            alias = self.text.of(child.child_by_field_name("alias")) if child.type == "aliased_import" else name
            dotted = f"{module}.{name}" if module else name
            known = scope.names.get(alias, ())
            if not any(b.kind == "import" and b.target == dotted for b in known):
                scope.bind(alias, Binding("import", dotted, "exact" if alias == name else "alias"))
            self.out.imports.append((scope.symbol, dotted, child.start_point[0] + 1))

    def absolute_module(self, text: str) -> str:
        dots = len(text) - len(text.lstrip("."))
        if not dots:
            return text
        package = self.package.split(".") if self.package else []
        base = package[: len(package) - (dots - 1)] if dots > 1 else package
        return ".".join([*base, *([text[dots:]] if text[dots:] else [])])

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
        if chain.endswith(".defvjp"):
            self.vjp(chain, arguments, scope, line)
        if chain and (self.may_launch(chain) or self.hands_callable(arguments)):
            site = RawSite(scope, node, chain, line, node.end_point[0] + 1, "call")
            parent = node.parent
            if self.text.first_argument(node) is None and parent is not None and parent.type == "call" and parent.child_by_field_name("function") == node:
                first = self.text.first_argument(parent)
                site.body = self.text.value(first) if first is not None else None
                site.form = "call of call"
            self.out.sites.append(site)
        self.visit(arguments, scope)

    def may_launch(self, chain: str) -> bool:
        tail = chain.rsplit(".", 1)[-1]
        return tail in LAUNCH_TAILS or tail.startswith("emit_pipeline")

    def launch_keywords(self, call: Any) -> bool:
        arguments = call.child_by_field_name("arguments")
        children = arguments.named_children if arguments is not None else ()
        return any(c.type == "keyword_argument" and self.text.of(c.child_by_field_name("name")) in LAUNCH_KEYWORDS for c in children)

    def hands_callable(self, arguments: Any) -> bool:
        """Whether a call is given a function: a local def, a partial, a lambda, or launch keywords."""
        for child in arguments.named_children:
            kind = child.type
            if kind == "keyword_argument":
                name = self.text.of(child.child_by_field_name("name"))
                if name in LAUNCH_KEYWORDS:
                    return True
                if not name.endswith(BODY_NAMES):
                    continue
                child = child.child_by_field_name("value")
                kind = child.type
            if kind == "identifier":
                name = self.text.of(child)
                if name in self.callables or name.endswith(BODY_NAMES):
                    return True
            elif kind == "lambda":
                return True
            elif kind == "call":
                if self.text.of(child.child_by_field_name("function")).endswith("partial"):
                    return True
            elif kind == "attribute" and self.text.of(child.child_by_field_name("attribute")).endswith(BODY_NAMES):
                return True
        return False

    def vjp(self, chain: str, arguments: Any, scope: Scope, line: int) -> None:
        given = [self.text.chain(child) for child in arguments.named_children if child.type not in ("comment", "keyword_argument")]
        if len(given) >= 2:
            self.out.vjps.append((scope, chain.removesuffix(".defvjp"), given[0], given[1], line))


def scope_for(scope: Scope, symbol: int, scopes: list[Scope] | None = None) -> Scope:
    """The same names, read on behalf of another symbol."""
    made = Scope(LAMBDA, scope.qual, symbol, scope)
    if scopes is not None:
        scopes.append(made)
    return made


HANDLERS: dict[str, Callable[[Walker, Any, Scope], None]] = {
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
    "comment": Walker.skip,
    "integer": Walker.skip,
    "string_start": Walker.skip,
    "string_content": Walker.skip,
    "string_end": Walker.skip,
    "future_import_statement": Walker.skip,
    "global_statement": Walker.skip,
    "nonlocal_statement": Walker.skip,
}
