"""A module in the graph: every step from profile to symbol and kernel can be walked, and nothing is dropped silently."""

from __future__ import annotations

import dataclasses

import pytest

from kgagent.evidence.diff import diff
from kgagent.evidence.frames import Frame
from kgagent.evidence.hlo import Module
from kgagent.evidence.kernels import kernel_calls
from kgagent.evidence.lines import Symbols, link_lines
from kgagent.evidence.record import op_id, record_diff, record_module
from kgagent.graph import Graph, NewEdge, NewNode

CANDIDATE, REFERENCE = "compile:attention/v6e:2x2/aaaa0001", "compile:attention/v6e:2x2/bbbb0002"
LAUNCH = "splash_mha_fwd_no_residuals.1"


def add_source(graph: Graph, name: str, root: str, path: str, spans: list[tuple[str, int, int]]) -> None:
    """A source with one file and its symbols, as ingest would write them."""
    with graph.transaction():
        graph.put_nodes([NewNode(f"src:{name}", "source", name, "test"), NewNode(f"file:{name}/{path}", "file", path, "test", source=f"src:{name}")])
        source, file = graph.key(f"src:{name}"), graph.key(f"file:{name}/{path}")
        graph.insert("source", key=source, locator=name, root=root, revision="1", ingested_at="now")
        graph.insert("file", key=file, source=source, path=path, sha=name, bytes=1, mtime_ns=1, status="ok")
        graph.put_nodes(
            NewNode(f"sym:{name}.{symbol}", "symbol", symbol, "test", source=f"src:{name}", file=f"file:{name}/{path}", line_start=first, line_end=last)
            for symbol, first, last in spans
        )


def add_lane(graph: Graph) -> None:
    with graph.transaction():
        graph.put_nodes([NewNode("lane:attention", "lane", "attention", "test")])


def splash_frame(splash: Module) -> Frame:
    return splash.own_frames(kernel_calls(splash)[0].instruction)[0]


def ingest_splash(graph: Graph, splash: Module) -> str:
    """The splash file as a source, with its wrapper, body and kernel; returns the wrapper's id."""
    frame = splash_frame(splash)
    root, path = frame.file.rsplit("/", 2)[0], "/".join(frame.file.rsplit("/", 2)[1:])
    wrapper = frame.function
    add_source(graph, "jax", root, path, [("module", 1, 9999), (wrapper, frame.line - 100, frame.end_line + 5), ("flash_attention_kernel", 700, 900)])
    with graph.transaction():
        graph.put_nodes([NewNode("kernel:splash", "kernel", "splash", "test")])
        file = graph.key(f"file:jax/{path}")
        graph.insert(
            "kernel", key=graph.key("kernel:splash"), api="pallas_call", backend="mosaic_tpu", backend_how="exact", launch_file=file,
            launch_line=frame.line, wrapper=graph.key(f"sym:jax.{wrapper}"), body=graph.key("sym:jax.flash_attention_kernel"), body_how="exact",
        )  # fmt: skip
    return f"sym:jax.{wrapper}"


def test_profile_to_kernel_can_be_walked(graph: Graph, splash: Module) -> None:
    add_lane(graph)
    wrapper = ingest_splash(graph, splash)
    written = record_module(graph, CANDIDATE, splash, lane="attention", label="predicted", data={"status": "ok"})
    frame = splash_frame(splash)
    launch, line = op_id(CANDIDATE, LAUNCH), f"line:{frame.file}#L{frame.line}"
    assert [e.dst for e in graph.edges(src=CANDIDATE, type="within")] == ["lane:attention"]
    assert graph.edges(src=CANDIDATE, type="has_op", dst=launch)
    (from_line,) = graph.edges(src=launch, type="from_line", dst=line)
    assert from_line.data["depth"] == 0 and from_line.data["share"] == pytest.approx(1)
    (within,) = graph.edges(src=line, type="within")
    assert (within.dst, within.how) == (wrapper, "exact")
    (lowered,) = graph.edges(src=launch, type="lowered_from")
    assert (lowered.dst, lowered.how) == ("kernel:splash", "exact")
    node = graph.need(launch)
    assert node.data["kernel_name"] == "splash_mha_fwd_no_residuals" and node.data["kernel"]["grid"] == [8, 4, 4]
    body_lines = [e for e in graph.edges(src=launch, type="from_line") if e.data.get("in_kernel_body")]
    assert "sym:jax.flash_attention_kernel" in {w.dst for e in body_lines for w in graph.edges(src=e.dst, type="within")}
    users = [e.dst for e in graph.edges(src=launch, type="from_line") if "programs.py" in e.dst]
    assert users, "the user's own line is in the chain"
    assert written.ops_left_out == 0 and graph.need(CANDIDATE).data["status"] == "ok"


def test_what_is_left_out_is_counted(graph: Graph, train_steps: dict[tuple[bool, bool], Module]) -> None:
    module = train_steps[False, True]
    written = record_module(graph, CANDIDATE, module, lane=None, label="cpu", limit=10)
    data = graph.need(CANDIDATE).data
    assert written.ops == data["ops_recorded"] == len(graph.edges(src=CANDIDATE, type="has_op")) == 10
    assert data["ops"] - 10 == written.ops_left_out == sum(row["ops"] for row in data["rest"].values())
    assert {graph.need(e.dst).data["op_class"] for e in graph.edges(src=CANDIDATE, type="has_op")} <= {"matmul", "kernel", "collective", "custom call"}


def test_recording_again_changes_nothing_and_a_smaller_limit_removes_what_it_drops(graph: Graph, einsum: Module) -> None:
    def contents() -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
        return (
            graph.rows("SELECT id, data FROM node ORDER BY id"),
            graph.rows("SELECT a.id, e.type, b.id, e.data FROM edge e JOIN node a ON a.key = e.src JOIN node b ON b.key = e.dst ORDER BY 1, 2, 3"),
        )

    record_module(graph, CANDIDATE, einsum, lane=None, label="predicted")
    once = contents()
    record_module(graph, CANDIDATE, einsum, lane=None, label="predicted")
    assert contents() == once
    record_module(graph, CANDIDATE, einsum, lane=None, label="predicted", limit=2)
    assert len(graph.edges(src=CANDIDATE, type="has_op")) == 2 == len(graph.rows("SELECT 1 FROM node WHERE kind = 'op'"))


def test_a_diff_in_the_graph_names_what_went_and_came(graph: Graph, einsum: Module, splash: Module) -> None:
    record_module(graph, REFERENCE, einsum, lane=None, label="predicted", limit=1)  # the diff adds the ops it names
    record_module(graph, CANDIDATE, splash, lane=None, label="predicted")
    change = diff(einsum, splash)
    record_diff(graph, CANDIDATE, REFERENCE, change)
    (edge,) = graph.edges(src=CANDIDATE, type="differs_from")
    assert edge.dst == REFERENCE and edge.data["buffers_went"][0]["shape"] == "f32[8,2048,2048]"
    assert {e.dst for e in graph.edges(src=CANDIDATE, type="removes")} == {op_id(REFERENCE, row.name) for row in change.went}
    assert {e.dst for e in graph.edges(src=CANDIDATE, type="adds")} == {op_id(CANDIDATE, row.name) for row in change.came}
    went = next(row for row in change.went if row.op_class == "matmul")
    assert list(graph.edges(src=op_id(REFERENCE, went.name), type="from_line"))
    record_diff(graph, CANDIDATE, REFERENCE, change, limit=1)
    (edge,) = graph.edges(src=CANDIDATE, type="differs_from")
    assert (edge.data["went"], edge.data["went_left_out"]) == (len(change.went), len(change.went) - 1)
    assert len(graph.edges(src=CANDIDATE, type="removes")) == 1


def test_lines_find_their_symbols_when_a_source_arrives_later(graph: Graph, splash: Module) -> None:
    record_module(graph, CANDIDATE, splash, lane=None, label="predicted")
    assert link_lines(graph) == 0
    wrapper = ingest_splash(graph, splash)
    assert link_lines(graph) > 0
    frame = splash_frame(splash)
    assert [e.dst for e in graph.edges(src=f"line:{frame.file}#L{frame.line}", type="within")] == [wrapper]


@pytest.mark.parametrize(
    ("path", "line", "symbol", "how"),
    [
        ("/site/jax/a/b.py", 15, "sym:jax.inner", "exact"),
        ("/site/jax/a/b.py", 5, "sym:jax.outer", "exact"),
        ("/elsewhere/jax/a/b.py", 15, "sym:jax.inner", "inferred"),
        ("/elsewhere/b.py", 15, None, None),  # a bare file name could be anybody's
        ("/site/jax/a/c.py", 15, None, None),
        ("/site/jax/a/b.py", 99, None, "exact"),
    ],
)
def test_the_innermost_symbol(graph: Graph, path: str, line: int, symbol: str | None, how: str | None) -> None:
    add_source(graph, "jax", "/site/jax", "a/b.py", [("outer", 1, 50), ("inner", 10, 20)])
    place = Symbols(graph).at(path, line)
    assert (place.symbol if place else None, place.how if place else None) == (symbol, how)


def test_two_equally_good_files_decide_nothing(graph: Graph) -> None:
    add_source(graph, "one", "/x/one", "a/b.py", [("f", 1, 9)])
    add_source(graph, "two", "/y/two", "a/b.py", [("f", 1, 9)])
    assert Symbols(graph).at("/z/a/b.py", 3) is None
    assert Symbols(graph).at("/z/one/a/b.py", 3).symbol == "sym:one.f"


def test_an_unknown_lane_or_profile_is_refused_whole(graph: Graph, einsum: Module, splash: Module) -> None:
    from kgagent.errors import KgError

    with pytest.raises(KgError):
        record_module(graph, CANDIDATE, einsum, lane="nobody", label="predicted")
    assert graph.node(CANDIDATE) is None and not graph.rows("SELECT 1 FROM node WHERE kind IN ('op', 'line')")
    with pytest.raises(KgError):
        record_diff(graph, CANDIDATE, REFERENCE, diff(einsum, splash))


def test_a_launch_is_known_by_its_name_alone_only_as_a_candidate(graph: Graph, splash: Module) -> None:
    from kgagent.evidence.launches import launched_kernel
    from kgagent.evidence.mosaic import body_of

    add_source(graph, "mine", "/m", "k.py", [("splash_mha_fwd_no_residuals", 1, 9)])
    with graph.transaction():
        graph.put_nodes([NewNode("kernel:mine", "kernel", "mine", "test")])
        graph.insert(
            "kernel", key=graph.key("kernel:mine"), api="pallas_call", backend="mosaic_tpu", backend_how="exact", launch_file=graph.key("file:mine/k.py"),
            launch_line=3, wrapper=graph.key("sym:mine.splash_mha_fwd_no_residuals"), body_how="unresolved",
        )  # fmt: skip
    body = body_of(kernel_calls(splash)[0].instruction)
    assert body is not None
    found = launched_kernel(graph, Symbols(graph), (), body, body.name)
    assert found is not None and (found.kernel, found.how) == ("kernel:mine", "candidate")
    assert launched_kernel(graph, Symbols(graph), (), dataclasses.replace(body, name="x"), "y") is None


def test_edges_of_other_makers_survive_a_second_recording(graph: Graph, splash: Module) -> None:
    record_module(graph, CANDIDATE, splash, lane=None, label="predicted")
    with graph.transaction():
        graph.put_nodes([NewNode("concept:x", "concept", "x", "test")])
        graph.put_edges([NewEdge(op_id(CANDIDATE, LAUNCH), "mentions", "concept:x", "test")])
    record_module(graph, CANDIDATE, splash, lane=None, label="predicted")
    assert graph.edges(src=op_id(CANDIDATE, LAUNCH), type="mentions")
