"""Any changed byte is found and named; a rebuilt graph says the same as the first."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from kgagent.errors import StorageError, UnknownThing
from kgagent.executor import frontier, refile, resume, run_experiment, verify
from kgagent.executor.receipts import SUMS, chain, read_chain, write_chain
from kgagent.graph import open_graph
from kgagent.lanes import load_lane
from kgagent.objects import Objects
from kgagent.workspace import Workspace
from tests.executor.toy import propose


@pytest.fixture(scope="module")
def lived_in_home(decided_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy workspace after a supported, a crashed, and a rerun experiment."""
    home = tmp_path_factory.mktemp("lived") / "w"
    shutil.copytree(decided_home, home)
    workspace = Workspace(home)
    lane = load_lane(workspace, "toy")
    with open_graph(workspace, write=True) as graph:
        crashed = propose(graph, lane, "raises")
        run_experiment(graph, lane, crashed)
        propose(graph, lane, "raises", whats_new="never run")
        run_experiment(graph, lane, crashed, rerun=True)
        run_experiment(graph, lane, propose(graph, lane, "raises", whats_new="another day"))
    return home


@pytest.fixture
def lived_in(lived_in_home: Path, tmp_path: Path) -> Workspace:
    shutil.copytree(lived_in_home, tmp_path / "w")
    return Workspace(tmp_path / "w")


def test_all_is_well(lived_in: Workspace) -> None:
    report = verify(lived_in)
    assert report.ok and (report.runs, report.receipts) == (5, 25)
    assert verify(lived_in, "exp:toy/0002").ok and verify(lived_in, "toy/0002").runs == 1 and verify(lived_in, "toy-0002").ok
    assert verify(lived_in, str(lived_in.runs / "toy-0002" / "04-judge.json")).runs == 1
    everywhere = read_chain(lived_in.runs / "toy-0001")[0].told["artefacts"]["file:inputs.py"]
    assert verify(lived_in, str(Objects(lived_in.objects).path(everywhere))).runs == 5
    with pytest.raises(UnknownThing, match="no run"):
        verify(lived_in, "toy/0042")


def test_a_flipped_bit_in_any_receipt_or_artefact_is_named(lived_in: Workspace) -> None:
    folder = lived_in.runs / "toy-0002"
    used = {sha for receipt in read_chain(folder) for sha in receipt.told.get("artefacts", {}).values()}
    files = [*sorted(folder.iterdir()), *(Objects(lived_in.objects).path(sha) for sha in sorted(used))]
    assert len(files) > 12
    for file in files:
        whole = file.read_bytes()
        for place in (0, len(whole) // 2, len(whole) - 2):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            problems = verify(lived_in, "toy/0002").problems
            assert problems, f"byte {place} of {file.name}"
            if file.name != SUMS:
                assert any(str(file) in problem.where for problem in problems), f"byte {place} of {file.name}: {problems}"
            else:  # the last receipt has none after it to vouch for it, so there both are named
                assert any(SUMS in f"{problem.where} {problem.what}" for problem in problems), f"byte {place} of {file.name}: {problems}"
        file.write_bytes(whole)
    assert verify(lived_in).ok


@pytest.mark.parametrize(
    ("step", "change", "told"),
    [
        ("judge", lambda told: told["comparison"].update(speedup=told["comparison"]["speedup"] * 1.1), "speedup is not what the samples give"),
        ("judge", lambda told: told["measured"].update(candidate=0.001), "not the median"),
        ("judge", lambda told: told.update(verdict="refuted"), "the rule gives supported"),
        ("judge", lambda told: told["gates"][3].update(result="fail"), "gate parity gives pass"),
        ("timing", lambda told: told["pairs"][0]["quads"].pop(), "samples"),
        ("timing", lambda told: told["noise"].update(floor_frac=0.0001), "noise floor"),
        ("plan", lambda told: told["baseline"].update(speedup_vs_reference=3.0), "product of the steps"),
    ],
)
def test_a_rewritten_chain_is_caught_by_its_sums(lived_in: Workspace, step: str, change: object, told: str) -> None:
    folder = lived_in.runs / "toy-0002"
    steps = [(receipt.step, receipt.told) for receipt in read_chain(folder)]
    change(dict(steps)[step])  # type: ignore[operator]
    write_chain(lived_in, "exp:toy/0002", chain("exp:toy/0002", steps))
    problems = [problem.what for problem in verify(lived_in, "toy/0002").problems]
    assert any(told in what for what in problems), problems
    assert any("differ from the receipts" in what for what in problems)


def test_rows_that_disagree_are_told(lived_in: Workspace) -> None:
    database = sqlite3.connect(lived_in.graph_db)
    for trigger in ("measurement_kept", "comparison_kept", "node_text_update"):
        database.execute(f"DROP TRIGGER {trigger}")
    database.execute("UPDATE measurement SET value = value * 2 WHERE leg = 'candidate'")
    database.commit()
    database.close()
    assert any("measurements differ" in problem.what for problem in verify(lived_in).problems)


def test_lost_receipts_are_told(lived_in: Workspace) -> None:
    shutil.rmtree(lived_in.runs / "toy-0003")
    assert [problem.what for problem in verify(lived_in).problems] == ["the receipts of exp:toy/0003 are gone"]


TABLES = ("lane_gate", "scope", "configuration", "experiment", "artefact", "receipt", "gate", "measurement", "comparison", "guard", "verdict")


def contents(workspace: Workspace) -> dict[str, list[tuple[object, ...]]]:
    """Rows without the integer keys, which a rebuild may number anew."""
    with open_graph(workspace) as graph:
        found: dict[str, list[tuple[object, ...]]] = {}
        for table in TABLES:
            columns = [row[1] for row in graph.rows(f"PRAGMA table_info({table})")]
            keys = {row[3]: row[2] for row in graph.rows(f"PRAGMA foreign_key_list({table})")}
            named = [
                f"(SELECT id FROM node WHERE key = {c})" if c == "key" and table in ("scope", "configuration", "experiment")
                else f"(SELECT id FROM node WHERE key = {c})" if c in keys and keys[c] not in ("measurement", "receipt") else c
                for c in columns if not (c == "key" and table in ("measurement", "comparison")) and not (table == "comparison" and keys.get(c) == "measurement")
            ]  # fmt: skip
            found[table] = sorted(graph.rows(f"SELECT {', '.join(named)} FROM {table}"), key=repr)
        edges = "SELECT a.id, e.type, b.id FROM edge e JOIN node a ON a.key = e.src JOIN node b ON b.key = e.dst"
        found["edges"] = sorted(graph.rows(f"{edges} WHERE a.kind IN ('experiment', 'verdict', 'measurement', 'profile')"))
        return found


def test_a_rebuilt_graph_says_the_same(lived_in: Workspace) -> None:
    before = contents(lived_in)
    lane = load_lane(lived_in, "toy")
    with open_graph(lived_in) as graph:
        best = frontier(graph, lane)
    for path in lived_in.root.glob("graph.db*"):
        path.unlink()
    with open_graph(lived_in, write=True) as graph:
        assert refile(graph) == 5
        assert refile(graph) == 0
        assert frontier(graph, lane) == best
        assert sorted(graph.rows("SELECT whats_new, status FROM hypothesis")) == [("", "done"), ("", "done"), ("another day", "done"), ("never run", "open")]
    after = contents(lived_in)
    for what in before:
        assert after[what] == before[what], what
    assert verify(lived_in).ok


def test_a_damaged_run_is_told_and_the_others_are_filed(lived_in: Workspace) -> None:
    for path in lived_in.root.glob("graph.db*"):
        path.unlink()
    receipt = lived_in.runs / "toy-0003" / "01-trace.json"
    receipt.write_text(json.dumps({**json.loads(receipt.read_text()), "outcome": "completed"}))
    with open_graph(lived_in, write=True) as graph:
        with pytest.raises(StorageError, match="changed since it was written") as caught:
            refile(graph)
        assert "toy-0003" in caught.value.what
        assert graph.value("SELECT count(*) FROM experiment WHERE filed = 1") >= 3


def test_a_damaged_graph_is_named_beside_whole_receipts(lived_in: Workspace) -> None:
    lived_in.graph_db.write_bytes(b"no database" * 1000)
    report = verify(lived_in)
    assert report.receipts == 25
    (problem,) = report.problems
    assert problem.where == str(lived_in.graph_db) and "damaged" in problem.what


def test_a_run_whose_baseline_is_lost_says_so(lived_in: Workspace) -> None:
    (lived_in.runs / "toy-0001" / "00-plan.json").unlink()
    lived_in.graph_db.unlink()
    with open_graph(lived_in, write=True) as graph, pytest.raises(StorageError) as caught:
        refile(graph)
    assert "it was measured against exp:toy/0001, which is not there (exp:toy/0002)" in caught.value.what


def test_receipts_that_lead_out_of_the_lane_are_not_followed(lived_in: Workspace, tmp_path: Path) -> None:
    folder = lived_in.runs / "toy-0002"
    steps = [(receipt.step, receipt.told) for receipt in read_chain(folder)]
    dict(steps)["plan"]["artefacts"]["file:../../../escaped.py"] = dict(steps)["plan"]["artefacts"]["file:candidate.py"]
    write_chain(lived_in, "exp:toy/0002", chain("exp:toy/0002", steps))
    problems = [problem.what for problem in verify(lived_in, "toy/0002").problems]
    assert any("outside the lane" in what for what in problems), problems


def test_a_damaged_journal_is_called_so(lived_in: Workspace) -> None:
    lived_in.journal_db.write_bytes(b"no database" * 1000)
    with open_graph(lived_in, write=True) as graph, pytest.raises(StorageError, match="the journal is damaged") as caught:
        resume(graph)
    assert "raw/runs" in caught.value.hint
    lived_in.journal_db.unlink()
    with open_graph(lived_in, write=True) as graph:
        assert resume(graph) == ()
