"""Small graphs made by hand, in the shape that ingest makes them, so that linking is tested apart from parsing."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from kgagent.graph import Graph, NewEdge, NewNode
from kgagent.objects import Objects


def put_source(graph: Graph, name: str, root: Path, files: Iterable[Path]) -> int:
    """A source with its files, modules, classes, functions and the imports they call, by plain `ast`; returns the number of files."""
    source, count = f"src:{name}", 0
    nodes, edges, rows = [], [], []
    for path in files:
        data = path.read_bytes()
        try:
            tree = ast.parse(data)
        except SyntaxError:
            continue
        relative = path.relative_to(root).as_posix()
        file = f"file:{name}/{relative}"
        module = relative.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        nodes.append(NewNode(file, "file", path.name, "test", source=source))
        rows.append((file, relative, Objects(graph.workspace.objects).put(data, durable=False), len(data)))
        nodes.append(
            NewNode(
                f"sym:{module}", "symbol", module.rsplit(".", 1)[-1], "test", source=source, file=file, line_start=1, line_end=max(1, data.count(b"\n") + 1)
            )
        )
        nodes.extend(_definitions(tree, module, file, source))
        edges.extend((src, dst, file, line) for src, dst, line in _calls(tree, module))
        count += 1
    have = {node.id for node in nodes}
    external = {dst for _, dst, _, _ in edges} - have
    with graph.transaction():
        graph.put_nodes([NewNode(source, "source", name, "test")])
        graph.insert("source", key=graph.key(source), locator=f"pkg:{name}", root=str(root), revision="0", ingested_at="2026-01-01T00:00:00+00:00")
        graph.put_nodes(nodes)
        graph.put_nodes(NewNode(id_, "symbol", id_.rsplit(".", 1)[-1], "test", data={"external": True}) for id_ in sorted(external) if graph.node(id_) is None)
        for file, relative, sha, size in rows:
            graph.insert("file", key=graph.key(file), source=graph.key(source), path=relative, sha=sha, bytes=size, mtime_ns=0, status="ok")
        graph.put_edges(NewEdge(src, "calls", dst, "test", "alias", file, line) for src, dst, file, line in edges)
    return count


def touch_file(graph: Graph, file: str, data: bytes) -> None:
    """Other bytes for a file, as ingest would leave them, spans unchanged."""
    with graph.transaction():
        sha = Objects(graph.workspace.objects).put(data, durable=False)
        graph.execute("UPDATE file SET sha = ?, bytes = ? WHERE key = ?", sha, len(data), graph.key(file))


def _definitions(tree: ast.Module, module: str, file: str, source: str) -> Iterator[NewNode]:
    def walk(body: Iterable[ast.AST], prefix: str) -> Iterator[NewNode]:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                dotted = f"{prefix}.{node.name}"
                start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                yield NewNode(f"sym:{dotted}", "symbol", node.name, "test", source=source, file=file, line_start=start, line_end=node.end_lineno)
                yield from walk(node.body, dotted)
            elif isinstance(node, (ast.If, ast.Try, ast.With)):
                yield from walk(ast.iter_child_nodes(node), prefix)

    seen: set[str] = set()
    for node in walk(tree.body, module):
        if node.id not in seen:
            seen.add(node.id)
            yield node


def _calls(tree: ast.Module, module: str) -> Iterator[tuple[str, str, int]]:
    """Calls through `import a.b as c` and `from a import b as c`, from the module or the outermost function."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update({alias.asname or alias.name.split(".")[0]: alias.name if alias.asname else alias.name.split(".")[0] for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    seen: set[tuple[str, str, int]] = set()
    for top in tree.body:
        owner = f"sym:{module}.{top.name}" if isinstance(top, (ast.FunctionDef, ast.ClassDef)) else f"sym:{module}"
        for node in ast.walk(top):
            if isinstance(node, ast.Call):
                dotted = ast.unparse(node.func) if isinstance(node.func, (ast.Name, ast.Attribute)) else ""
                head, _, rest = dotted.partition(".")
                if head in names and all(part.isidentifier() for part in dotted.split(".")):
                    edge = (owner, f"sym:{names[head]}" + (f".{rest}" if rest else ""), node.lineno)
                    if edge not in seen:
                        seen.add(edge)
                        yield edge
