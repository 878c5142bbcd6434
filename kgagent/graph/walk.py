"""Neighbourhoods and paths in SQL, with a fan-out cap that counts what it leaves out."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence

from kgagent.graph.records import Edge, Neighbor, Neighborhood, Node
from kgagent.graph.store import EDGE_COLUMNS, NODE_COLUMNS, Graph, edge_of, node_of

WAYS = (("out", "src", "dst"), ("in", "dst", "src"))
HUB = 200  # edges one way, beyond which a node is asked type by type


def neighbors(graph: Graph, id_: str, *, hops: int = 1, types: Sequence[str] = (), direction: str = "both", cap: int = 25) -> Neighborhood:
    """Nodes within `hops`; each (node, type, direction) shows at most `cap` ends, the rest as "and N more".

    Keys are walked first, rows are read once at the end: a two-hop walk asks for hundreds of edges, most of them in the same few files.
    """
    center = graph.need(id_)
    seen, frontier = {center.key}, [center.key]
    steps: list[tuple[int, str, int, int]] = []  # edge, way, other end, hop
    capped: list[tuple[int, str, str, int]] = []  # node, type, way, how many more
    for hop in range(1, hops + 1):
        following: list[int] = []
        for key in frontier:
            for way, mine, other in WAYS:
                if direction not in ("both", way):
                    continue
                for type_, ends, total in _ends(graph, key, mine, other, types, cap):
                    for edge, end in ends:
                        if hop == 1 or end not in seen:
                            steps.append((edge, way, end, hop))
                        if end not in seen:
                            seen.add(end)
                            following.append(end)
                    if total > len(ends):
                        capped.append((key, type_, way, total - len(ends)))
        frontier = following
    nodes = {center.key: center} | _nodes(graph, seen - {center.key})
    edges = _edges(graph, [edge for edge, _, _, _ in steps], nodes)
    found = tuple(Neighbor(edges[edge], way, nodes[end], hop) for edge, way, end, hop in steps)
    return Neighborhood(center, found, tuple((f"{nodes[key].id} {type_} ({way})", count) for key, type_, way, count in capped))


def _nodes(graph: Graph, keys: Collection[int]) -> dict[int, Node]:
    sql = f"SELECT {NODE_COLUMNS} FROM node n WHERE n.key IN (SELECT value FROM json_each(?))"
    return {row[0]: node_of(row) for row in graph.rows(sql, json.dumps(list(keys)))}


def _edges(graph: Graph, keys: Collection[int], nodes: dict[int, Node]) -> dict[int, Edge]:
    """Edges whose ends are among `nodes`, each file's path read once."""
    sql = "SELECT key, src, type, dst, how, made_by, file, line, data FROM edge WHERE key IN (SELECT value FROM json_each(?))"
    rows = graph.rows(sql, json.dumps(list(keys)))
    files = json.dumps(sorted({row[6] for row in rows if row[6] is not None}))
    paths = dict(
        graph.rows("SELECT f.key, s.root || '/' || f.path FROM file f JOIN source s ON s.key = f.source WHERE f.key IN (SELECT value FROM json_each(?))", files)
    )
    return {
        key: Edge(key, nodes[src].id, type_, nodes[dst].id, how, made_by, paths.get(file), line, json.loads(data) if data else {})
        for key, src, type_, dst, how, made_by, file, line, data in rows
    }


def _ends(graph: Graph, key: int, mine: str, other: str, types: Sequence[str], cap: int) -> Iterator[tuple[str, list[tuple[int, int]], int]]:
    """Per type at a node: its first `cap` (edge, other end), and how many there are. One query for most nodes; a hub is asked type by type."""
    rows = graph.rows(f"SELECT type, key, {other} FROM edge WHERE {mine} = ? LIMIT ?", key, HUB)
    if len(rows) < HUB:
        groups: dict[str, list[tuple[int, int]]] = {}
        for type_, edge, end in rows:
            groups.setdefault(type_, []).append((edge, end))
        for type_, ends in sorted(groups.items()):
            if not types or type_ in types:
                yield type_, ends[:cap], len(ends)
        return
    for type_ in types or _types(graph, key, mine):
        found = graph.rows(f"SELECT key, {other} FROM edge WHERE {mine} = ? AND type = ? LIMIT ?", key, type_, cap)
        total = len(found) if len(found) < cap else int(graph.value(f"SELECT count(*) FROM edge WHERE {mine} = ? AND type = ?", key, type_))
        if found:
            yield type_, [(edge, end) for edge, end in found], total


def _types(graph: Graph, key: int, column: str) -> list[str]:
    """Distinct edge types at a node, by hopping through the index instead of reading a hub's every edge."""
    found: list[str] = []
    while True:
        after = found[-1] if found else ""
        type_ = graph.value(f"SELECT min(type) FROM edge WHERE {column} = ? AND type > ?", key, after)
        if type_ is None:
            return found
        found.append(type_)


def shortest_path(
    graph: Graph, start: str, goal: str, *, types: Sequence[str] = (), direction: str = "both", max_hops: int = 5, cap: int = 200
) -> tuple[Edge, ...]:
    """The fewest edges from one node to another, along `types` and `direction` (both, out, in) only; () where `max_hops` don't suffice."""
    type_sql = "AND type IN (SELECT value FROM json_each(?))" if types else ""
    type_values = (json.dumps(list(types)),) if types else ()
    ways = [f"SELECT key, {other} FROM edge WHERE {mine} = ? {type_sql} LIMIT ?" for way, mine, other in WAYS if direction in ("both", way)]
    source, target = graph.need(start).key, graph.need(goal).key
    came: dict[int, tuple[int, int]] = {}
    seen, frontier = {source}, [source]
    for _ in range(max_hops):
        following: list[int] = []
        for key in frontier:
            rows = [row for sql in ways for row in graph.rows(sql, key, *type_values, cap)]
            for edge_key, other in rows:
                if other not in seen:
                    seen.add(other)
                    came[other] = (edge_key, key)
                    following.append(other)
        if target in seen:
            break
        frontier = following
    if target not in came:
        return ()
    keys = []
    while target != source:
        edge_key, target = came[target]
        keys.append(edge_key)
    sql = f"SELECT {EDGE_COLUMNS} FROM edge e JOIN node a ON a.key = e.src JOIN node b ON b.key = e.dst WHERE e.key = ?"
    return tuple(edge_of(graph.rows(sql, key)[0]) for key in reversed(keys))
