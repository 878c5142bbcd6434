"""Reading names off tree-sitter expressions: dotted chains, values, types, and the text they came from."""

from __future__ import annotations

import re
from typing import Any

from kgagent.ingest.scopes import OPAQUE, Value

_PLAIN = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z")
_CLASS_NAME = re.compile(r"_*[A-Z][A-Z0-9]*[a-z]")  # TABLE[n] is an item of a table
_STRING_BODY = re.compile(r"""\A[rRbBuUfF]{0,2}('''|\"\"\"|'|")(.*)\1\Z""", re.DOTALL)
UNION_WRAPPERS = frozenset(
    {"Optional", "typing.Optional", "Final", "ClassVar", "Annotated", "typing.Final", "typing.ClassVar", "typing.Annotated", "type", "Type"}
)


class Text:
    """One file's text, read back by syntax node."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        # In an ASCII file bytes and characters count alike, and slices need no decoding.
        self._ascii = source.decode("ascii") if source.isascii() else None

    def of(self, node: Any) -> str:
        if self._ascii is not None:
            return self._ascii[node.start_byte : node.end_byte]
        return self.source[node.start_byte : node.end_byte].decode()

    def chain(self, node: Any) -> str:
        """The dotted chain an expression is, calls in it as `()`; '' where it is none."""
        kind = node.type
        if kind == "identifier":
            return self.of(node)
        if kind == "attribute":
            text = self.of(node)
            if text.replace(".", "").isidentifier():  # the common case, several times faster than a regular expression
                return text
            inner = self.chain(node.child_by_field_name("object"))
            return f"{inner}.{self.of(node.child_by_field_name('attribute'))}" if inner else ""
        if kind == "call":
            inner = self.chain(node.child_by_field_name("function"))
            return f"{inner}()" if inner else ""
        if kind == "parenthesized_expression" and node.named_child_count == 1:
            return self.chain(node.named_children[0])
        if kind == "subscript":  # a generic alias, `Op[Config, Key]`
            inner = self.chain(node.child_by_field_name("value"))
            return inner if _CLASS_NAME.match(inner[inner.rfind(".") + 1 :]) else ""
        return ""

    def value(self, node: Any, depth: int = 0) -> Value:
        """The callable or class an expression may stand for."""
        kind = node.type
        if kind in ("identifier", "attribute"):
            chain = self.chain(node)
            return Value("name", chain) if chain else OPAQUE
        if depth > 6:
            return OPAQUE
        if kind == "call":
            chain = self.chain(node.child_by_field_name("function"))
            if not chain:
                return OPAQUE
            first = self.first_argument(node)
            return Value("call", chain, (self.value(first, depth + 1),) if first is not None else ())
        if kind == "conditional_expression":
            named = node.named_children
            return Value("choice", parts=(self.value(named[0], depth + 1), self.value(named[-1], depth + 1)))
        if kind == "boolean_operator":
            return Value("choice", parts=tuple(self.value(part, depth + 1) for part in node.named_children))
        if kind in ("parenthesized_expression", "type", "await"):
            return self.value(node.named_children[0], depth + 1) if node.named_child_count == 1 else OPAQUE
        if kind == "named_expression":
            return self.value(node.child_by_field_name("value"), depth + 1)
        if kind in ("list", "tuple"):
            return Value("list", parts=tuple(self.value(part, depth + 1) for part in node.named_children[:16]))
        if kind == "lambda":
            body = node.child_by_field_name("body")
            if body is not None and body.type == "call":
                return Value("lambda", parts=(Value("name", self.chain(body.child_by_field_name("function"))),))
            return Value("lambda")
        return OPAQUE

    def first_argument(self, call: Any) -> Any:
        """The first positional argument's node, or None."""
        arguments = call.child_by_field_name("arguments")
        if arguments is None or arguments.type != "argument_list":
            return None
        for child in arguments.named_children:
            if child.type not in ("comment", "keyword_argument"):
                return None if child.type in ("list_splat", "dictionary_splat") else child
        return None

    def annotated(self, node: Any, depth: int = 0) -> Value:
        """The class an annotation names: `X | None`, `Optional[X]`, `"X"` are all X."""
        kind = node.type
        if depth > 6:
            return OPAQUE
        if kind in ("type", "parenthesized_expression") and node.named_child_count == 1:
            return self.annotated(node.named_children[0], depth + 1)
        if kind in ("identifier", "attribute"):
            return Value("name", self.chain(node))
        if kind in ("binary_operator", "union_type"):
            named = [self.annotated(part, depth + 1) for part in node.named_children]
            named = [part for part in named if part.kind != "opaque"]
            return named[0] if len(named) == 1 else Value("choice", parts=tuple(named))
        if kind == "string":
            found = _STRING_BODY.match(self.of(node))
            body = found.group(2).removesuffix("| None").strip() if found else ""
            return Value("name", body) if _PLAIN.match(body) else OPAQUE
        if kind in ("subscript", "generic_type"):
            named = node.named_children
            base = self.of(named[0])
            if base.rsplit(".", 1)[-1] in UNION_WRAPPERS or base in UNION_WRAPPERS:
                inner = named[1] if len(named) > 1 else None
                if inner is not None and inner.type == "type_parameter" and inner.named_child_count:
                    inner = inner.named_children[0]
                return self.annotated(inner, depth + 1) if inner is not None else OPAQUE
            return Value("name", base) if _PLAIN.match(base) else OPAQUE
        return OPAQUE

    def chains_in(self, node: Any, found: list[str] | None = None) -> list[str]:
        """Every outermost dotted chain read inside an expression, keyword names left out."""
        found = [] if found is None else found
        kind = node.type
        if kind == "identifier":
            found.append(self.of(node))
            return found
        if kind == "attribute":
            chain = self.chain(node)
            if chain and "(" not in chain:
                found.append(chain)
                return found
            return self.chains_in(node.child_by_field_name("object"), found)
        if kind == "keyword_argument":
            return self.chains_in(node.child_by_field_name("value"), found)
        for child in node.named_children:
            self.chains_in(child, found)
        return found

    def calls_in(self, node: Any, tail: str, found: list[Any] | None = None) -> list[Any]:
        """Calls inside an expression whose callee ends in `tail`."""
        found = [] if found is None else found
        if node.type == "call":
            function = node.child_by_field_name("function")
            name = self.of(function)
            if name == tail or name.endswith("." + tail):
                found.append(node)
        for child in node.named_children:
            self.calls_in(child, tail, found)
        return found


def docstring_of(text: str) -> str:
    """A string literal's content, dedented as Python shows it; '' when it isn't a plain string."""
    found = _STRING_BODY.match(text)
    if found is None:
        return ""
    body = found.group(2)
    if "\n" not in body:
        return body.strip()
    first, *others = body.expandtabs().split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in others if line.strip()), default=0)
    return "\n".join([first.strip(), *(line[margin:].rstrip() for line in others)]).strip()
