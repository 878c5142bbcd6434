"""What import statements bind, as absolute dotted names."""

from __future__ import annotations

from typing import Any

from kgagent.ingest.scopes import Binding, Scope
from kgagent.ingest.shapes import MODULE
from kgagent.ingest.visitor import Visitor


class Imports(Visitor):
    """Handlers of import statements."""

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
            if alias == name and child.type == "aliased_import" and scope.kind == MODULE:
                self.out.renamed_to_itself[name] = child.start_point[0] + 1
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
