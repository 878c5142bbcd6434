"""Neighbourhoods and paths in SQL, with a fan-out cap that counts what it leaves out."""

from __future__ import annotations

from collections.abc import Sequence

from kgagent.graph.records import Edge, Neighbor, Neighborhood
from kgagent.graph.store import EDGE_COLUMNS, NODE_COLUMNS, Graph, edge_of, node_of


def neighbors(graph: Graph, id_: str, *, hops: int = 1, types: Sequence[str] = (), direction: str = "both", cap: int = 25) -> Neighborhood:
    """Nodes within `hops`; each (node, type, direction) shows at most `cap` ends, the rest as "and N more"."""
    center = graph.need(id_)
    seen, frontier = {center.key}, [center.key]
    found: list[Neighbor] = []
    more: list[tuple[str, int]] = []
    for hop in range(1, hops + 1):
        following: list[int] = []
        for key in frontier:
            for way, mine, other in (("out", "src", "dst"), ("in", "dst", "src")):
                if direction not in ("both", way):
                    continue
                for type_ in _types(graph, key, mine, types):
                    rows = graph.rows(
                        f"""SELECT {EDGE_COLUMNS}, {NODE_COLUMNS} FROM (SELECT * FROM edge WHERE {mine} = ? AND type = ? LIMIT ?) e
                            JOIN node a ON a.key = e.src JOIN node b ON b.key = e.dst JOIN node n ON n.key = e.{other}""",
                        key, type_, cap,
                    )  # fmt: skip
                    for row in rows:
                        edge, node = edge_of(row[:9]), node_of(row[9:])
                        if hop == 1 or node.key not in seen:
                            found.append(Neighbor(edge, way, node, hop))
                        if node.key not in seen:
                            seen.add(node.key)
                            following.append(node.key)
                    if len(rows) == cap:
                        total = graph.value(f"SELECT count(*) FROM edge WHERE {mine} = ? AND type = ?", key, type_)
                        if total > cap:
                            label = f"{graph.value('SELECT id FROM node WHERE key = ?', key)} {type_} ({way})"
                            more.append((label, total - cap))
        frontier = following
    return Neighborhood(center, tuple(found), tuple(more))


def _types(graph: Graph, key: int, column: str, wanted: Sequence[str]) -> list[str]:
    """Distinct edge types at a node, by hopping through the index instead of reading a hub's every edge."""
    if wanted:
        return list(wanted)
    found: list[str] = []
    while True:
        after = found[-1] if found else ""
        type_ = graph.value(f"SELECT min(type) FROM edge WHERE {column} = ? AND type > ?", key, after)
        if type_ is None:
            return found
        found.append(type_)


def shortest_path(graph: Graph, start: str, goal: str, *, max_hops: int = 5, cap: int = 200) -> tuple[Edge, ...]:
    """The fewest edges from one node to another, direction ignored; () where `max_hops` don't suffice."""
    source, target = graph.need(start).key, graph.need(goal).key
    came: dict[int, tuple[int, int]] = {}
    seen, frontier = {source}, [source]
    for _ in range(max_hops):
        following: list[int] = []
        for key in frontier:
            rows = graph.rows(
                "SELECT * FROM (SELECT key, dst FROM edge WHERE src = ? LIMIT ?) UNION ALL SELECT * FROM (SELECT key, src FROM edge WHERE dst = ? LIMIT ?)",
                key, cap, key, cap,
            )  # fmt: skip
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
