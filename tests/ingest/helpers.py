"""A graph in a folder, small source trees, and a graph's rows without what may differ between two equal graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kgagent.graph import Graph, open_graph
from kgagent.workspace import create_workspace

SHARED = Path(__file__).parents[2].parent / "shared"


def graph_in(folder: Path) -> Graph:
    return open_graph(create_workspace(folder), write=True)


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


def edges(graph: Graph, *types: str) -> set[tuple[str, str, str, str]]:
    """(src, type, dst, how) with the ids' `sym:` left off."""
    marks = ", ".join("?" * len(types))
    rows = graph.rows(
        f"SELECT a.id, e.type, b.id, e.how FROM edge e JOIN node a ON a.key = e.src JOIN node b ON b.key = e.dst WHERE e.type IN ({marks})", *types
    )
    return {(a.removeprefix("sym:"), type_, b.removeprefix("sym:"), how) for a, type_, b, how in rows}


def contents(graph: Graph) -> dict[str, list[tuple[Any, ...]]]:
    """Everything ingest wrote, by text ids: keys and times are the only things left out."""
    id_of = "(SELECT id FROM node x WHERE x.key = {0})"
    node = f"""SELECT id, kind, name, words, doc, {id_of.format("n.source")}, {id_of.format("n.file")}, line_start, line_end, data, made_by
               FROM node n WHERE made_by = 'ingest'"""
    edge = f"""SELECT {id_of.format("e.src")}, type, {id_of.format("e.dst")}, {id_of.format("e.file")}, line, how, data FROM edge e WHERE made_by = 'ingest'"""
    kernel = f"""SELECT {id_of.format("k.key")}, api, backend, backend_how, {id_of.format("launch_file")}, launch_line, {id_of.format("wrapper")},
                 {id_of.format("body")}, body_how, body_text, grid FROM kernel k"""
    file = f"SELECT {id_of.format('f.key')}, path, sha, bytes, status, reason, hex(facts) FROM file f"
    queries = {
        "node": node,
        "edge": edge,
        "kernel": kernel,
        "file": file,
        "module": f"SELECT {id_of.format('m.file')}, name, hex(surface) FROM module m",
        "depends": f"SELECT module, {id_of.format('d.file')} FROM depends d",
        "source": f"SELECT {id_of.format('s.key')}, locator, root, revision, data FROM source s",
    }
    return {name: sorted(graph.rows(sql), key=repr) for name, sql in queries.items()}


def search_is_whole(graph: Graph) -> None:
    """Raises where text search and the nodes differ."""
    for table in ("node_fts", "node_trigram"):
        graph.db.execute(f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 1)")
