"""Whole experiments: honest ones are decided by the clock, bad ones end as what they are."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from kgagent.errors import Busy, Refused
from kgagent.executor import ExperimentReport, experiment_report, frontier, run_experiment, verify
from kgagent.executor.journal import Journal, one_loop
from kgagent.graph import Graph, open_graph
from kgagent.lanes import Lane, load_lane
from kgagent.workspace import Workspace
from tests.executor.toy import TRIES, impatient, propose


def run(toy_graph: tuple[Graph, Lane], impl: str, **more: object) -> ExperimentReport:
    graph, lane = toy_graph
    return run_experiment(graph, lane, propose(graph, lane, impl, **more))  # type: ignore[arg-type]


def nothing_open(graph: Graph) -> bool:
    with Journal(graph.workspace) as journal:
        return journal.open_runs() == ()


def sound(graph: Graph, lane: Lane, report: ExperimentReport, verdict: str) -> None:
    assert (report.outcome, report.verdict) == ("completed", verdict), report.reason
    assert all(gate.result == "pass" for gate in report.gates), report.gates
    best = frontier(graph, lane)
    assert best is not None and (best.experiment == report.experiment) == (verdict == "supported")
    state = graph.value("SELECT e.merge_state FROM experiment e JOIN node n ON n.key = e.key WHERE n.id = ?", report.experiment)
    assert state == ("candidate" if verdict == "supported" else "none")
    assert verify(graph.workspace).problems == ()
    walk(graph, report)


def test_a_faster_candidate_is_supported(decided_home: Path) -> None:
    workspace = Workspace(decided_home)
    with open_graph(workspace) as graph:
        sound(graph, load_lane(workspace, "toy"), experiment_report(graph, "exp:toy/0002"), "supported")


def test_a_slower_candidate_is_refuted(toy_graph: tuple[Graph, Lane]) -> None:
    graph, lane = toy_graph
    hypothesis = propose(graph, lane, "slow")
    for tried in range(TRIES):
        report = run_experiment(graph, lane, hypothesis, rerun=tried > 0)
        if report.verdict != "inconclusive":
            break
    sound(graph, lane, report, "refuted")


def walk(graph: Graph, report: ExperimentReport) -> None:
    """From the verdict to its measurement, the profile and the configuration; and by way of the hypothesis."""

    def follow(start: str, *types: str) -> str:
        for type_ in types:
            start = next(edge.dst for edge in graph.edges(src=start, type=type_))
        return start

    verdict = f"verdict:{report.experiment.removeprefix('exp:')}"
    assert follow(verdict, "based_on", "based_on", "uses") == report.configuration
    assert follow(report.experiment, "supports" if report.verdict == "supported" else "refutes", "based_on") == report.configuration
    profile = follow(verdict, "based_on", "based_on")
    assert graph.edges(src=profile, type="has_op")
    lines = [edge.dst for op in graph.edges(src=profile, type="has_op") for edge in graph.edges(src=op.dst, type="from_line")]
    assert any("candidate.py" in line for line in lines)
    assert graph.edges(src=profile, type="differs_from")
    assert Path(report.receipts).is_dir()


@pytest.mark.parametrize(
    ("impl", "gate"),
    [
        ("nan", "finite"), ("dtype", "signature"), ("shape", "signature"), ("tail", "parity"), ("imprecise", "parity"),
        ("plain", "not_a_noop"), ("claims_loop", "mechanism"),
    ],
)  # fmt: skip
def test_gates_stop_unsound_candidates(toy_graph: tuple[Graph, Lane], impl: str, gate: str) -> None:
    report = run(toy_graph, impl)
    assert (report.outcome, report.verdict) == ("completed", "invalid")
    assert next(result.name for result in report.gates if result.result == "fail") == gate
    assert gate in report.reason and "\n" not in report.reason
    assert nothing_open(toy_graph[0])
    assert verify(toy_graph[0].workspace).problems == ()


def test_a_candidate_that_edits_its_own_exam_fails(quick: Workspace) -> None:
    lane = load_lane(quick, "toy")
    with open_graph(quick, write=True) as graph:
        report = run((graph, lane), "edits")
    assert report.verdict == "invalid"
    assert [gate.name for gate in report.gates if gate.result == "fail"] == ["immutable"]
    assert "inputs.py changed" in report.reason


@pytest.mark.parametrize(
    ("impl", "outcome", "told"),
    [
        ("raises", "crashed", "candidate.py:8: RuntimeError: no such luck"), ("exits", "crashed", "SystemExit: 7"), ("hangs", "timeout", "4 s"),
        ("floods", "flooded", "64 KiB"), ("hoards", "out_of_memory", "1500 MiB"), ("callback", "refused", "handed over"),
    ],
)  # fmt: skip
def test_bad_candidates_are_recorded_as_what_they_are(toy_graph: tuple[Graph, Lane], impl: str, outcome: str, told: str) -> None:
    graph, lane = toy_graph
    report = run((graph, impatient(graph.workspace) if outcome == "timeout" else lane), impl)
    assert (report.outcome, report.verdict) == (outcome, "invalid")
    assert told in report.detail and "\n" not in report.detail
    assert nothing_open(graph)
    assert graph.value("SELECT count(*) FROM measurement m JOIN node n ON n.key = m.experiment WHERE n.id = ?", report.experiment) == 0
    assert verify(graph.workspace, report.experiment).problems == ()
    assert not any(graph.workspace.scratch.iterdir())


def test_forked_sleepers_are_gone_in_time(toy_graph: tuple[Graph, Lane]) -> None:
    graph, lane = toy_graph[0], impatient(toy_graph[0].workspace)
    started = time.monotonic()
    report = run((graph, lane), "forks")
    assert report.outcome == "timeout"
    assert time.monotonic() - started < 4 + 5
    pid = int((lane.folder / "pid").read_text())
    stat = Path(f"/proc/{pid}/stat")
    assert not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def test_decided_hypotheses_and_repeats_are_refused(toy_graph: tuple[Graph, Lane]) -> None:
    graph, lane = toy_graph
    hypothesis = propose(graph, lane, "raises")
    first = run_experiment(graph, lane, hypothesis)
    with pytest.raises(Refused, match="decided by exp:toy/0002"):
        run_experiment(graph, lane, hypothesis)
    with pytest.raises(Refused, match="proposed before") as caught:
        propose(graph, lane, "raises")
    assert hypothesis in caught.value.hint
    assert propose(graph, lane, "raises", whats_new="another compiler") != hypothesis
    again = run_experiment(graph, lane, hypothesis, rerun=True)
    assert again.experiment != first.experiment
    assert [edge.dst for edge in graph.edges(src=again.experiment, type="supersedes")] == [first.experiment]


def test_changed_code_and_second_loop_are_refused(toy_graph: tuple[Graph, Lane]) -> None:
    graph, lane = toy_graph
    hypothesis = propose(graph, lane, "dot")
    holding, let_go = threading.Event(), threading.Event()

    def other_loop() -> None:
        with one_loop(graph.workspace), one_loop(graph.workspace):
            holding.set()
            let_go.wait(20)

    other = threading.Thread(target=other_loop)
    other.start()
    holding.wait(20)
    with pytest.raises(Busy, match="another kgagent"):
        run_experiment(graph, lane, hypothesis)
    let_go.set()
    other.join()
    (lane.folder / "candidate.py").write_text((lane.folder / "candidate.py").read_text() + "# edited\n")
    with pytest.raises(Refused, match="code changed"):
        run_experiment(graph, load_lane(graph.workspace, "toy"), hypothesis)
    assert nothing_open(graph)
