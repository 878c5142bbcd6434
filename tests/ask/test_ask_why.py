"""`why` on a graph whose every number is known: what it finds first, what it rests on, what it refuses to say."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from graphs import (
    AOT_CANDIDATE,
    CANDIDATE,
    CPU,
    KERNEL,
    REFERENCE,
    SPLASH,
    TOKAMAX_KERNEL,
    Built,
    build,
    compiled,
    config,
    experiment,
    line_of,
    pad,
    reference_ops,
)

from kgagent.ask import Answer, Finding, why
from kgagent.errors import UsageError
from kgagent.graph import NewEdge, NewNode, plain

SPLASH_HERE = "why is splash fast here"
QUESTIONS = [SPLASH_HERE, "why is chunked faster than einsum here", "why is grouped fast", "why is online softmax fast", "why is tokamax splash fast"]


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return build(tmp_path)


def ask(built: Built, question: str) -> Answer:
    with built.open() as graph:
        return why(graph, question)


def of_kind(answer: Answer, kind: str) -> list[Finding]:
    return [finding for finding in answer.findings if finding.kind == kind]


SUBJECTS = [
    (SPLASH_HERE, KERNEL),
    ("Why is the splash attention kernel so fast?", KERNEL),
    ("why is Splash slow on v6e", KERNEL),
    ("why is tokamax splash fast", TOKAMAX_KERNEL),
    ("why is splash dkv fast", KERNEL.replace("flash_attention_kernel", "flash_attention_dkv_kernel")),
    ("why is chunked faster than einsum here", "lever:attention/impl=chunked"),
    ("why is grouped fast", "lever:attention/gqa=grouped"),
    ("why is online softmax fast", "concept:streaming-softmax"),
    ("why GQA", "concept:grouped-query-attention"),
    (f"why is {KERNEL} fast", KERNEL),
    ("why is make_splash_mha fast", "sym:jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel.make_splash_mha"),
]


@pytest.mark.parametrize("question, subject", SUBJECTS)
def test_words_name_the_subject(built: Built, question: str, subject: str) -> None:
    answer = ask(built, question)
    assert answer.subject is not None and answer.subject.id == subject
    assert answer.findings


def test_splash_first_says_untimed_and_answers_for_the_preflighted_topology(built: Built) -> None:
    first = ask(built, SPLASH_HERE).findings[0]
    assert (first.kind, first.strength) == ("predicted", "predicted")
    for part in (
        "not timed on a TPU here",
        "v6e:2x2",
        "predicted",
        "[.., 2048, 2048] (seq x seq)",
        "f32[1,8,2048,2048] (128 MiB each)",
        "none is left",
        "256 MiB -> 2 MiB",
    ):
        assert part in first.text
    lines = {(Path(c.path).name, c.line) for c in first.citations}
    assert {("reference.py", line_of(REFERENCE, "scores =")), ("reference.py", line_of(REFERENCE, "weights ="))} <= lines
    assert ("splash_attention_kernel.py", line_of(SPLASH, "pl.pallas_call")) in lines
    assert any(triple.startswith(f"{AOT_CANDIDATE} removes ") for triple in first.triples)


def test_splash_evidence_comes_strongest_first(built: Built) -> None:
    answer = ask(built, SPLASH_HERE)
    kinds = list(dict.fromkeys(finding.kind for finding in answer.findings))
    assert kinds == ["predicted", "kernel", "mechanism", "experiment", "compiled", "claim", "precondition", "conflict", "enables", "tunable", "next"]
    kernel = of_kind(answer, "kernel")[0]
    assert {c.note: c.line for c in kernel.citations} == {
        "launch": line_of(SPLASH, "pl.pallas_call"),
        "wrapper": line_of(SPLASH, "def _splash_attention_forward"),
        "body": line_of(SPLASH, "def flash_attention_kernel"),
    }
    streaming = next(f for f in of_kind(answer, "mechanism") if f.text.startswith("Streaming softmax"))
    assert [c.line for c in streaming.citations] == [line_of(SPLASH, part) for part in ("m_next = ", "alpha = ", "l_ref[...] = alpha")]
    assert [c.line for c in of_kind(answer, "tunable")[0].citations] == [line_of(SPLASH, f"  {name}:") for name in ("block_q", "block_kv", "block_kv_compute")]


def test_cpu_numbers_say_cpu_and_interpret_mode(built: Built) -> None:
    timed = next(f for f in of_kind(ask(built, SPLASH_HERE), "experiment") if "refuted" in f.text)
    assert timed.strength == "measured on cpu" and "[cpu]" in timed.text and CPU in timed.text
    assert "interpret mode" in timed.text and "slower, not faster" in timed.text
    assert "0.04x" in timed.text and "interval 0.0392x to 0.0408x, 24 pairs, noise floor 1.5%" in timed.text


def test_a_crash_is_told_as_what_it_was(built: Built) -> None:
    stopped = next(f for f in of_kind(ask(built, SPLASH_HERE), "experiment") if "timeout" in f.text)
    assert "killed after 60 s" in stopped.text and "no time was compared" in stopped.text and stopped.strength == "stated"


def test_a_tpu_measurement_comes_first(tmp_path: Path) -> None:
    answer = ask(build(tmp_path, tpu_trial=True), SPLASH_HERE)
    first = answer.findings[0]
    assert (first.kind, first.strength) == ("experiment", "measured on tpu")
    assert "6.1x" in first.text and "[tpu]" in first.text
    assert not any("not timed on a TPU" in finding.text for finding in answer.findings)
    assert not any("time on a TPU" in unknown for unknown in answer.unknown)


def test_without_preflight_the_first_finding_still_says_untimed(tmp_path: Path) -> None:
    answer = ask(build(tmp_path, preflight=False), SPLASH_HERE)
    assert answer.findings[0].kind == "not timed" and "not timed on a TPU here and not compiled for one" in answer.findings[0].text
    assert any("not preflighted" in unknown for unknown in answer.unknown)


def test_without_any_run_the_levers_say_untimed(tmp_path: Path) -> None:
    answer = ask(build(tmp_path, preflight=False, trials=False), SPLASH_HERE)
    assert answer.findings[0].kind == "not timed" and "no experiment pulled" in answer.findings[0].text
    assert of_kind(answer, "kernel")


def test_a_kernel_the_lane_does_not_reach_says_which_it_does(built: Built) -> None:
    first = ask(built, "why is tokamax splash fast").findings[0]
    assert first.kind == "not timed" and f"impl=splash reaches {KERNEL} instead" in first.text


def test_a_blocked_compile_gives_the_compilers_words(built: Built) -> None:
    with built.open(write=True) as graph, graph.transaction():
        big = config(graph, "aaaa0009", {"impl": "chunked", "block_q": 4096})
        compiled(graph, "compile:attention/v6e:2x2/aaaa0009", big, {}, topology="v6e:2x2", label="predicted")
        node = graph.need("compile:attention/v6e:2x2/aaaa0009")
        data = {**node.data, "status": "blocked", "error": "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem"}
        graph.put_nodes([NewNode(node.id, "profile", node.name, "compiler", data=data)])
    first = ask(built, "why is chunked fast").findings[0]
    assert first.kind == "predicted" and "does not compile: RESOURCE_EXHAUSTED" in first.text


def test_versus_uses_the_paired_run_and_else_the_common_reference(built: Built) -> None:
    paired = ask(built, "why is chunked faster than einsum here")
    assert "3.1x over exp:attention/0001" in of_kind(paired, "experiment")[0].text and not of_kind(paired, "comparison")
    unpaired = of_kind(ask(built, "why is chunked faster than grouped"), "comparison")
    assert "1.94x between them, not timed as a pair" in unpaired[0].text


def test_numbers_of_two_scopes_are_not_compared(built: Built) -> None:
    with built.open(write=True) as graph, graph.transaction():
        dot = config(graph, "cccc0001", {"impl": "dot"})
        graph.put_nodes([NewNode("lever:attention/impl=dot", "lever", "impl=dot", "lanes")])
        graph.put_edges([NewEdge("lever:attention/impl=dot", "within", "lane:attention", "lanes")])
        experiment(graph, built, dot, "impl=dot", "supported", 2.0, scope="scope:attention/6e6e6e6e", device="TPU v6 lite")
    answer = ask(built, "why is chunked faster than dot")
    assert not of_kind(answer, "comparison")
    assert any("numbers don't compare" in unknown for unknown in answer.unknown)


def test_instructions_that_remain_are_counted(built: Built) -> None:
    with built.open(write=True) as graph, graph.transaction():
        reference = str(graph.need("file:lane-attention/reference.py").path)
        ops = {"fusion.9": ("fusion", "f32[1,8,2048,2048]{3,2,1,0}", 134217728, "")}
        half = config(graph, "bbbb0009", {"impl": "chunked", "block_q": 512})
        compiled(graph, "compile:attention/v6e:2x2/bbbb0009", half, ops, against=AOT_CANDIDATE.replace("0001", "0000"), topology="v6e:2x2", label="predicted")
        assert reference_ops(reference)
    assert "1 remain" in ask(built, "why is chunked fast").findings[0].text


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_finding_goes_with_its_edges(tmp_path: Path, question: str) -> None:
    built = build(tmp_path)
    findings = ask(built, question).findings
    assert findings
    for finding in findings:
        assert finding.edges and len(finding.triples) == len(finding.edges)
        with built.open(write=True) as graph:
            graph.execute("BEGIN")
            graph.execute("DELETE FROM edge WHERE key IN (SELECT value FROM json_each(?))", json.dumps(finding.edges))
            left = why(graph, question)
            graph.execute("ROLLBACK")
        assert finding.text not in {other.text for other in left.findings}, finding.text
        assert not any(other.kind == finding.kind and other.nodes == finding.nodes for other in left.findings), finding.text


@pytest.mark.parametrize("question", QUESTIONS)
def test_without_edges_nothing_is_found(tmp_path: Path, question: str) -> None:
    built = build(tmp_path)
    with built.open(write=True) as graph:
        graph.execute("DELETE FROM edge")
    answer = ask(built, question)
    assert answer.findings == () and answer.unknown


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_citation_is_there(built: Built, question: str) -> None:
    answer = ask(built, question)
    citations = [citation for finding in answer.findings for citation in finding.citations]
    assert citations and not answer.notes
    for citation in citations:
        lines = Path(citation.path).read_text().splitlines()
        assert 1 <= citation.line <= citation.end_line <= len(lines)
        with built.open() as graph:
            assert graph.node(citation.node) is not None


CHANGES = [
    ("gone", lambda path: path.unlink(), "can't be read any more"),
    ("shorter", lambda path: path.write_text("\n".join(SPLASH.splitlines()[:20]) + "\n"), "has 20 lines now"),
    ("edited", lambda path: path.write_text(SPLASH + "# more\n"), "changed since it was ingested"),
]


@pytest.mark.parametrize("name, change, note", CHANGES, ids=[change[0] for change in CHANGES])
def test_a_file_that_changed_is_said(built: Built, name: str, change, note: str) -> None:
    path = next(path for id_, path in built.files.items() if id_.startswith("file:jax/"))
    change(path)
    answer = ask(built, SPLASH_HERE)
    assert any(note in said and str(path) in said for said in answer.notes)
    have = len(path.read_text().splitlines()) if path.exists() else 0
    for finding in answer.findings:
        assert all(c.end_line <= have for c in finding.citations if c.path == str(path))
    assert of_kind(answer, "kernel"), "the finding stays without the line"


@pytest.mark.parametrize(
    "question, near", [("why is splahs fast", KERNEL), ("why is streeming softmaks fast", "concept:streaming-softmax"), ("why is flux capacitor fast", None)]
)
def test_the_unknown_is_said_with_what_is_near(built: Built, question: str, near: str | None) -> None:
    answer = ask(built, question)
    assert answer.subject is None and answer.findings == () and "nothing in the graph is called" in answer.unknown[0]
    assert near is None or near in [node.id for node in answer.nearest]


@pytest.mark.parametrize("question", ["", "   ", "?!", "why is it so fast here", "WHY???"])
def test_a_question_without_a_subject_is_a_usage_error(built: Built, question: str) -> None:
    with pytest.raises(UsageError):
        ask(built, question)


@pytest.mark.parametrize(
    "question",
    ['why is "splash" OR * fast', "why is splash'; DROP TABLE node;-- fast", "why %_ splash", "why is sym:no.such.thing fast", "ワイ splash 速い", "x" * 5000],
)
def test_odd_questions_are_answered_or_unknown(built: Built, question: str) -> None:
    answer = ask(built, question)
    assert answer.findings or answer.unknown


def test_ties_and_words_that_name_nothing_are_said(built: Built) -> None:
    answer = ask(built, "why is splash attention gizmo fast on v5e")
    assert TOKAMAX_KERNEL in [node.id for node in answer.also]
    said = " ".join(answer.unknown)
    assert '"gizmo"' in said and TOKAMAX_KERNEL in said and "v5e: nothing was compiled or timed" in said


def test_here_is_the_chosen_lane_else_the_busiest(tmp_path: Path) -> None:
    chosen = ask(build(tmp_path / "a"), SPLASH_HERE).here
    assert chosen.lane is not None and chosen.lane.id == "lane:attention" and chosen.chosen_by == "kgagent.toml"
    assert (chosen.scope.id, chosen.frontier.id, chosen.topology) == (CPU, "exp:attention/0002", "v6e:2x2")  # type: ignore[union-attr]
    assert chosen.frontier_speedup == pytest.approx(3.1)
    assert ask(build(tmp_path / "b", lane=None), SPLASH_HERE).here.chosen_by == "most experiments"


def test_an_empty_graph_knows_nothing(tmp_path: Path) -> None:
    from kgagent.graph import open_graph
    from kgagent.workspace import create_workspace

    with open_graph(create_workspace(tmp_path)) as graph:
        answer = why(graph, SPLASH_HERE)
    assert answer.subject is None and answer.unknown and answer.here.lane is None


def test_answers_are_json(built: Built) -> None:
    assert json.loads(json.dumps(plain(ask(built, SPLASH_HERE))))["findings"][0]["citations"]


def test_a_large_graph_answers_at_once(built: Built) -> None:
    with built.open(write=True) as graph, graph.transaction():
        pad(graph, 60_000)
    with built.open() as graph:
        started = time.perf_counter()
        for question in QUESTIONS:
            assert why(graph, question).findings
        assert (time.perf_counter() - started) / len(QUESTIONS) < 0.3


def test_asking_imports_nothing_heavy(built: Built) -> None:
    code = f"""
import sys
from pathlib import Path
from kgagent.ask import why
from kgagent.graph import open_graph
from kgagent.workspace import Workspace
with open_graph(Workspace(Path({str(built.workspace.root)!r}))) as graph:
    assert why(graph, {SPLASH_HERE!r}).findings
print(sorted(set(sys.modules) & {{"jax", "networkx", "textual", "pydantic_ai", "numpy", "yaml", "sqlite_utils", "tree_sitter", "rich"}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_fixture_is_real(built: Built) -> None:
    """The graph's spans point at what they say, or every test above proves nothing."""
    with built.open() as graph:
        for node_id, start in (("sym:lanes.attention.candidate.chunked", "def chunked"), ("sym:lanes.attention.reference.reference", "def reference")):
            node = graph.need(node_id)
            assert Path(str(node.path)).read_text().splitlines()[node.line_start - 1].startswith(start)  # type: ignore[operator]
    assert "splash_attention_kernel.make_splash_mha" in CANDIDATE
