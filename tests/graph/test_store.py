"""The store: migrations, transactions, search and walks."""

from __future__ import annotations

import itertools
import sqlite3
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgagent.errors import Busy, Refused, StorageError, UnknownThing
from kgagent.graph import Graph, NewEdge, NewNode, find, neighbors, open_graph, shortest_path
from kgagent.graph.migrate import migrations, newest, statements
from kgagent.graph.words import split_identifier
from kgagent.workspace import Workspace, create_workspace

CASES = [
    ("flash_attention_kernelV2", "flash attention kernel v 2"),
    ("SplashConfig.block_q", "splash config block q"),
    ("HTTPServer", "http server"),
    ("xla_tpu_scoped_vmem_limit_kib", "xla tpu scoped vmem limit kib"),
    ("", ""),
]


@pytest.mark.parametrize(("name", "words"), CASES)
def test_identifiers_split(name: str, words: str) -> None:
    assert split_identifier(name) == words


def nodes(*ids: str, kind: str = "symbol") -> list[NewNode]:
    return [NewNode(i, kind, i.split(":")[-1], "test") for i in ids]


def test_migrations_are_numbered_without_gaps() -> None:
    assert [number for number, _, _ in migrations()] == list(range(1, newest() + 1))


def test_a_trigger_is_one_statement() -> None:
    script = "CREATE TABLE a(x);\n-- a comment; with a semicolon\nCREATE TRIGGER t AFTER INSERT ON a BEGIN\n  DELETE FROM a;\n  DELETE FROM a;\nEND;\n"
    assert len(list(statements(script))) == 2


def test_every_table_is_strict(graph: Graph) -> None:
    loose = graph.rows("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND strict = 0 AND name NOT LIKE 'sqlite_%'")
    assert loose == []


def test_pragmas(graph: Graph) -> None:
    assert graph.value("PRAGMA journal_mode") == "wal"
    assert graph.value("PRAGMA foreign_keys") == 1


def test_provenance_is_not_optional(graph: Graph) -> None:
    with pytest.raises(Refused):
        graph.put_nodes([NewNode("sym:a", "symbol", "a", "")])


def test_an_edge_needs_both_ends(graph: Graph) -> None:
    graph.put_nodes(nodes("sym:a"))
    with pytest.raises(Refused):
        graph.put_edges([NewEdge("sym:a", "calls", "sym:nowhere", "test")])


def test_a_failed_transaction_leaves_nothing(graph: Graph) -> None:
    with pytest.raises(Refused), graph.transaction():
        graph.put_nodes(nodes("sym:a"))
        graph.put_edges([NewEdge("sym:a", "calls", "sym:nowhere", "test")])
    assert graph.node("sym:a") is None


def test_a_failed_savepoint_keeps_the_rest(graph: Graph) -> None:
    with graph.transaction():
        graph.put_nodes(nodes("sym:a"))
        with pytest.raises(Refused), graph.transaction():
            graph.put_nodes(nodes("sym:b"))
            graph.put_edges([NewEdge("sym:b", "calls", "sym:nowhere", "test")])
    assert graph.node("sym:a") is not None
    assert graph.node("sym:b") is None


def test_a_second_writer_is_told(graph: Graph, workspace: Workspace) -> None:
    other = open_graph(workspace, write=True, busy_s=0.05)
    with graph.transaction(), pytest.raises(Busy), other.transaction():
        pass
    other.close()


def test_a_reader_sees_the_old_graph_while_another_writes(graph: Graph, workspace: Workspace) -> None:
    graph.put_nodes(nodes("sym:a"))
    with graph.transaction():
        graph.put_nodes(nodes("sym:b"))
        with open_graph(workspace) as reader:
            assert reader.node("sym:a") is not None
            assert reader.node("sym:b") is None


def test_a_reader_cannot_write(graph: Graph, workspace: Workspace) -> None:
    with open_graph(workspace) as reader, pytest.raises(StorageError), reader.transaction():
        pass


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    workspace = create_workspace(tmp_path)
    workspace.graph_db.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StorageError, match="damaged"):
        open_graph(workspace)


def test_a_newer_schema_is_left_alone(tmp_path: Path) -> None:
    workspace = create_workspace(tmp_path)
    open_graph(workspace, write=True).close()
    connection = sqlite3.connect(workspace.graph_db)
    connection.execute(f"PRAGMA user_version = {newest() + 1}")
    connection.close()
    with pytest.raises(StorageError, match="newer kgagent"):
        open_graph(workspace)


def test_replacing_a_node_keeps_its_edges(graph: Graph) -> None:
    graph.put_nodes(nodes("sym:a", "sym:b"))
    graph.put_edges([NewEdge("sym:a", "calls", "sym:b", "test", line=3)])
    graph.put_nodes([NewNode("sym:b", "symbol", "renamed", "test")])
    assert [(e.src, e.dst, e.line) for e in graph.edges()] == [("sym:a", "sym:b", 3)]
    assert find(graph, "renamed")[0].node.id == "sym:b"


FIND_CASES = [
    ("splash attention", "concept:splash-attention"),
    ("flash kernel", "sym:jax.flash_attention_kernel"),
    ("tention_ker", "sym:jax.flash_attention_kernel"),
    ("sym:jax.flash_attention_kernel", "sym:jax.flash_attention_kernel"),
    ('odd "quotes" AND (syntax* OR', None),
    ("ab", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "first"), FIND_CASES)
def test_find(graph: Graph, text: str, first: str | None) -> None:
    graph.put_nodes(
        [
            NewNode("concept:splash-attention", "concept", "Splash attention", "test"),
            NewNode("sym:jax.flash_attention_kernel", "symbol", "flash_attention_kernel", "test"),
        ]
    )
    hits = find(graph, text)
    assert (hits[0].node.id if hits else None) == first


@given(text=st.text(max_size=40))
def test_find_never_trips_over_what_people_type(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    graph = _shared_graph(tmp_path_factory)
    find(graph, text)


_GRAPHS: list[Graph] = []


def _shared_graph(factory: pytest.TempPathFactory) -> Graph:
    if not _GRAPHS:
        _GRAPHS.append(open_graph(create_workspace(factory.mktemp("find")), write=True))
        _GRAPHS[0].put_nodes(nodes("sym:a.b_c", "sym:AND.or"))
    return _GRAPHS[0]


def test_unknown_node_names_the_nearest(graph: Graph) -> None:
    graph.put_nodes(nodes("sym:jax.flash_attention_kernel"))
    with pytest.raises(UnknownThing) as caught:
        graph.need("flash_attention")
    assert "sym:jax.flash_attention_kernel" in caught.value.hint


def test_a_hub_is_capped_and_says_so(graph: Graph) -> None:
    graph.put_nodes(nodes("sym:hub", *[f"sym:n{i}" for i in range(60)]))
    graph.put_edges([NewEdge(f"sym:n{i}", "calls", "sym:hub", "test") for i in range(60)])
    around = neighbors(graph, "sym:hub", cap=25)
    assert len(around.neighbors) == 25
    assert around.more == (("sym:hub calls (in)", 35),)


@pytest.mark.parametrize("count", [10, 60, 199, 200, 500])
def test_a_cap_counts_the_rest_whether_hub_or_not(graph: Graph, count: int) -> None:
    graph.put_nodes(nodes("sym:hub", *[f"sym:n{i}" for i in range(count)]))
    graph.put_edges([NewEdge(f"sym:n{i}", "calls" if i % 2 else "uses", "sym:hub", "test") for i in range(count)])
    around = neighbors(graph, "sym:hub", cap=7)
    shown = {t: sum(n.edge.type == t for n in around.neighbors) for t in ("calls", "uses")}
    more = dict(around.more)
    assert shown["calls"] + more.get("sym:hub calls (in)", 0) == count // 2
    assert shown["uses"] + more.get("sym:hub uses (in)", 0) == count - count // 2
    only = neighbors(graph, "sym:hub", types=["uses"], cap=7)
    assert {n.edge.type for n in only.neighbors} == {"uses"}


def test_two_hops_do_not_come_back(graph: Graph) -> None:
    graph.put_nodes(nodes("sym:a", "sym:b", "sym:c"))
    graph.put_edges([NewEdge("sym:a", "calls", "sym:b", "test"), NewEdge("sym:b", "calls", "sym:c", "test")])
    assert [(n.node.id, n.hop) for n in neighbors(graph, "sym:a", hops=2).neighbors] == [("sym:b", 1), ("sym:c", 2)]


@given(edges=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=14), ends=st.tuples(st.integers(0, 7), st.integers(0, 7)))
def test_a_path_is_shortest_and_whole(edges: list[tuple[int, int]], ends: tuple[int, int], tmp_path_factory: pytest.TempPathFactory) -> None:
    import networkx

    graph = _shared_graph(tmp_path_factory)
    graph.execute("DELETE FROM node WHERE id LIKE 'sym:p%'")
    graph.put_nodes(nodes(*[f"sym:p{i}" for i in range(8)]))
    graph.put_edges([NewEdge(f"sym:p{a}", "calls", f"sym:p{b}", "test") for a, b in set(edges)])
    view = networkx.Graph(edges)
    view.add_nodes_from(range(8))
    path = shortest_path(graph, f"sym:p{ends[0]}", f"sym:p{ends[1]}", max_hops=8)
    expected = networkx.shortest_path_length(view, *ends) if networkx.has_path(view, *ends) else 0
    assert len(path) == expected


DIRECTED = [("both", 2), ("out", 3), ("in", 0)]


@pytest.mark.parametrize(("direction", "steps"), DIRECTED)
def test_a_path_keeps_to_its_direction(graph: Graph, direction: str, steps: int) -> None:
    graph.put_nodes(nodes("sym:a", "sym:b", "sym:c", "sym:d", "sym:hub"))
    graph.put_edges(
        [NewEdge(x, "calls", y, "test") for x, y in (("sym:a", "sym:b"), ("sym:b", "sym:c"), ("sym:c", "sym:d"), ("sym:a", "sym:hub"), ("sym:d", "sym:hub"))]
    )
    assert len(shortest_path(graph, "sym:a", "sym:d", direction=direction)) == steps


def test_threads_are_not_half_read(graph: Graph, workspace: Workspace) -> None:
    graph.put_nodes(nodes("sym:a"))
    seen: list[bool] = []

    def read() -> None:
        with open_graph(workspace) as reader:
            seen.append(reader.node("sym:a") is not None)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 4


def test_a_path_keeps_to_the_types_asked_for(graph: Graph) -> None:
    """The shortest way may be another one than the evidence's."""
    ids = ["a", "b", "c", "d"]
    graph.put_nodes([NewNode(f"sym:{id_}", "symbol", id_, "test") for id_ in ids])
    chain = [NewEdge(f"sym:{x}", "uses", f"sym:{y}", "test") for x, y in itertools.pairwise(ids)]
    graph.put_edges([NewEdge("sym:a", "calls", "sym:d", "test"), *chain])
    assert [edge.type for edge in shortest_path(graph, "sym:a", "sym:d")] == ["calls"]
    assert [edge.dst for edge in shortest_path(graph, "sym:a", "sym:d", types=["uses"])] == ["sym:b", "sym:c", "sym:d"]
    assert [edge.dst for edge in shortest_path(graph, "sym:d", "sym:a", types=["uses"])] == ["sym:d", "sym:c", "sym:b"]
    assert shortest_path(graph, "sym:a", "sym:d", types=["imports"]) == ()
