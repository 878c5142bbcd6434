"""The pieces of an answer, as tables: reading a question, wording numbers, choosing lines."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from graphs import AOT_CANDIDATE, AOT_REFERENCE, CANDIDATE, CPU, Built, build, compiled, config, experiment, line_of

from kgagent.ask import why
from kgagent.ask.question import read_question
from kgagent.ask.wording import bare, dims, first_sentence, listed, settings, size, times
from kgagent.graph import NewEdge, NewNode

QUESTIONS = [
    ("why is splash fast here", ("splash",), (), (), ""),
    ("Why is chunked faster than einsum here?", ("chunked",), ("einsum",), (), ""),
    ("why is splash fast on v6e:2x2", ("splash",), (), (), "v6e:2x2"),
    ("why is splash fast on TPU7x", ("splash",), (), (), "tpu7x"),
    ("why does flash_attention_kernel win", ("flash", "attention", "kernel"), (), (), ""),
    ("why is kernel:a/b/c fast?", (), (), ("kernel:a/b/c",), ""),
    ("than einsum", ("einsum",), (), (), ""),
]


@pytest.mark.parametrize("text, terms, against, ids, chip", QUESTIONS)
def test_read_question(text: str, terms: tuple[str, ...], against: tuple[str, ...], ids: tuple[str, ...], chip: str) -> None:
    asked = read_question(text)
    assert (asked.terms, asked.against, asked.ids, asked.chip) == (terms, against, ids, chip)


SIZES = [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (134217728, "128 MiB"), (2281799584, "2.125 GiB"), (1 << 50, "1024 TiB")]


@pytest.mark.parametrize("count, said", SIZES)
def test_size(count: int, said: str) -> None:
    assert size(count) == said


SENTENCES = [
    ("One thing. Another thing.", "One thing."),
    ("It takes 1.5 ms on v5e. Then more.", "It takes 1.5 ms on v5e."),
    ("| a | b |\n|---|---|\n| 1 | 2 |\n\nAfter the table. More.", "After the table."),
    ("See [[tiling]] and [[vmem|the VMEM page]]. Next.", "See tiling and the VMEM page."),
    ("`H` heads share one. More.", "`H` heads share one."),
    ("```\ncode\n```\n", "code"),
    ("", ""),
]


@pytest.mark.parametrize("text, first", SENTENCES)
def test_first_sentence(text: str, first: str) -> None:
    assert first_sentence(text) == first


def test_a_long_sentence_is_cut_visibly() -> None:
    assert first_sentence("word " * 200).endswith(" …")


SHAPES = [
    ("f32[1,8,2048,2048]{3,2,1,0:T(8,128)}", [(1, 8, 2048, 2048)], "f32[1,8,2048,2048]"),
    ("(f32[8,4096]{1,0}, f32[8,4096,4096]{2,1,0})", [(8, 4096), (8, 4096, 4096)], "(f32[8,4096], f32[8,4096,4096])"),
    ("u32[]", [()], "u32[]"),
    ("f32[<=16,2]", [(16, 2)], "f32[<=16,2]"),
    ("token", [], "token"),
]


@pytest.mark.parametrize("shape, arrays, shown", SHAPES)
def test_shapes(shape: str, arrays: list[tuple[int, ...]], shown: str) -> None:
    assert (dims(shape), bare(shape)) == (arrays, shown)


def test_small_wordings() -> None:
    assert [times(value) for value in (0.04, 1.5, 3.1234, 123.4)] == ["0.04x", "1.5x", "3.12x", "123x"]
    assert [listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"]), listed([])] == ["a", "a and b", "a, b and c", ""]
    assert settings({"skip": True, "block": 256, "impl": "x"}) == "block=256, impl=x, skip=true"


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return build(tmp_path)


def text_of(built: Built, question: str, part: str) -> str:
    with built.open() as graph:
        return next(finding.text for finding in why(graph, question).findings if part in finding.text)


def test_a_tpu_kernel_timed_on_a_cpu_was_interpreted(built: Built) -> None:
    """No compile says so here: the lever leads to a Mosaic TPU kernel, and a CPU can run that in no other way."""
    with built.open(write=True) as graph, graph.transaction():
        made = experiment(graph, built, config(graph, "dddd0001", {"impl": "splash", "block_q": 32}), "impl=splash", "refuted", 0.5)
    assert "the interpreter was timed, not the kernel" in text_of(built, "why is splash fast", made)
    with built.open(write=True) as graph, graph.transaction():
        made = experiment(graph, built, config(graph, "dddd0002", {"impl": "chunked", "block_q": 32}), "impl=chunked", "supported", 2.5)
    assert "interpret" not in text_of(built, "why is chunked fast", made)


def test_memory_is_set_against_the_baselines_compile(built: Built) -> None:
    with built.open(write=True) as graph, graph.transaction():
        graph.put_edges([NewEdge("exp:attention/0001", "produced", "compile:attention/cpu/aaaa0000", "executor")])
    assert "temporary memory 256 MiB -> 4 MiB" in text_of(built, "why is chunked fast", "exp:attention/0002")


def test_a_default_without_a_lever_is_still_known(built: Built) -> None:
    with built.open(write=True) as graph, graph.transaction():
        lane = graph.need("lane:attention")
        knobs = {"impl": {"default": "einsum", "choices": ["einsum", "chunked", "splash"]}, "block_q": {"default": 128, "choices": [128, 256]}}
        graph.put_nodes([NewNode(lane.id, "lane", lane.name, "lanes", data={"knobs": knobs})])
        graph.execute("DELETE FROM edge WHERE src = ?1 OR dst = ?1", graph.key("lever:attention/impl=einsum"))
        graph.execute("DELETE FROM node WHERE id = 'lever:attention/impl=einsum'")
    with built.open() as graph:
        answer = why(graph, "why is einsum slow")
    assert answer.subject is not None and answer.subject.id == "lane:attention"
    assert "exp:attention/0001" in " ".join(finding.text for finding in answer.findings)


def test_a_lever_of_any_value_lists_what_is_left(built: Built) -> None:
    with built.open(write=True) as graph, graph.transaction():
        lane = graph.need("lane:attention")
        graph.put_nodes([NewNode(lane.id, "lane", lane.name, "lanes", data={"knobs": {"block_kv": {"choices": [128, 256]}}})])
        data = {"lane": "attention", "knob": "block_kv", "value": "*"}
        graph.put_nodes([NewNode("lever:attention/block_kv", "lever", "block_kv", "lanes", data=data)])
        graph.put_edges([NewEdge("lever:attention/block_kv", "within", lane.id, "lanes")])
        experiment(graph, built, config(graph, "dddd0003", {"impl": "chunked", "block_kv": 128}), "impl=chunked", "supported", 2.0)
    assert "block_kv=256" in text_of(built, "why is splash fast", "not tried")
    assert "block_kv=128" not in text_of(built, "why is splash fast", "not tried")


def test_of_a_frame_chain_both_ends_are_cited(built: Built) -> None:
    """The library's line and the user's; what lies between is in the graph but not in the answer."""
    op = f"op:{AOT_REFERENCE.removeprefix('compile:')}/fusion.1"
    with built.open(write=True) as graph, graph.transaction():
        graph.execute("DELETE FROM edge WHERE type = 'from_line' AND src = ?", graph.key(op))
        path = str(graph.need("file:lane-attention/candidate.py").path)
        for depth, line in enumerate((5, 6, line_of(CANDIDATE, "def chunked"))):
            graph.put_nodes([NewNode(f"line:{path}#L{line}", "line", "line", "evidence", data={"path": path, "line": line})])
            graph.put_edges([NewEdge(op, "from_line", f"line:{path}#L{line}", "evidence", data={"depth": depth, "dominant": True})])
    with built.open() as graph:
        first = why(graph, "why is splash fast").findings[0]
    assert {c.line for c in first.citations if c.path == path} == {5, line_of(CANDIDATE, "def chunked")}


def test_what_a_preflight_refused_is_cited(built: Built) -> None:
    with built.open(write=True) as graph, graph.transaction():
        node = graph.need(AOT_CANDIDATE)
        path = graph.need("file:lane-attention/candidate.py").path
        data = {**node.data, "status": "blocked", "error": "too much VMEM", "error_line": f"{path}:5"}
        graph.put_nodes([NewNode(node.id, "profile", node.name, "executor", data=data)])
    with built.open() as graph:
        first = why(graph, "why is splash fast").findings[0]
    assert "does not compile: too much VMEM" in first.text and [(c.path, c.line) for c in first.citations] == [(path, 5)]


def test_findings_hold_for_the_scope_they_name(built: Built) -> None:
    """An experiment that no edge puts at a scope is not told: nobody could say what its number holds for."""
    with built.open(write=True) as graph:
        graph.execute("DELETE FROM edge WHERE type = 'at' AND src = ?", graph.key("exp:attention/0002"))
    with built.open() as graph:
        answer = why(graph, "why is chunked fast")
    assert not any(finding.kind == "experiment" for finding in answer.findings)
    assert CPU not in json.dumps([finding.text for finding in answer.findings])


def test_a_compile_is_set_beside_what_it_was_compared_with(built: Built) -> None:
    """On the CPU that is the frontier of its day; its tiles are square, and no length of the problem though another point has that length."""
    tile = "f32[1,2,4,128,128]{4,3,2,1,0}"
    with built.open(write=True) as graph, graph.transaction():
        points = [{"name": "cpu", "seq": 1024, "head_dim": 64}, {"name": "tpu", "seq": 4096, "head_dim": 128}]
        graph.put_nodes([NewNode("lane:attention", "lane", "attention", "lanes", data={"op_points": points})])
        cpu = {"topology": "cpu", "label": "cpu", "op_point": "cpu"}
        tiled = config(graph, "eeee0001", {"impl": "chunked", "block_q": 128})
        compiled(graph, "compile:attention/cpu/eeee0001", tiled, {"fusion.9": ("fusion", tile, 65536, "")}, role="trial", **cpu)
        mine = config(graph, "eeee0002", {"impl": "splash", "block_q": 64})
        ops = {"fusion.10": ("fusion", "f32[8,1024,64]{2,1,0}", 2097152, "")}
        compiled(graph, "compile:attention/cpu/eeee0002", mine, ops, against="compile:attention/cpu/eeee0001", role="trial", **cpu)
    text = text_of(built, "why is splash fast", "compiled for cpu")
    assert "against the compile of its baseline (block_q=128, impl=chunked)" in text
    assert "[.., 128, 128] buffer" in text and "head_dim" not in text


@pytest.mark.parametrize("question", ["why is kernel:nope fast", '" OR 1=1', "why is exp:attention/9999 slow", "why is " + "a" * 5000 + " fast"])
def test_what_names_nothing_is_answered_as_nothing(built: Built, question: str) -> None:
    with built.open() as graph:
        answer = why(graph, question)
    assert answer.subject is None and answer.findings == ()
    assert answer.unknown and all(len(text) < 200 for text in answer.unknown)
    assert answer.question == question.strip()


def test_a_pipe_in_place_of_a_file_is_not_waited_for(built: Built) -> None:
    with built.open() as graph:
        cited = {citation.path for finding in why(graph, "why is splash fast").findings for citation in finding.citations}
        path = Path(next(path for path in sorted(cited) if path.endswith(".py")))
        path.unlink()
        os.mkfifo(path)
        answer = why(graph, "why is splash fast")
    assert str(path) not in {citation.path for finding in answer.findings for citation in finding.citations}
    assert any(str(path) in note for note in answer.notes)
