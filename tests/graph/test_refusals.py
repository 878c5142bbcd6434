"""Each rule of the research memory, tried by somebody who wants to break it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest

from kgagent.errors import Refused
from kgagent.graph import Graph, NewEdge, NewNode
from tests.graph.memory import NOW, Memory


class Setting:
    """A lane with one scope and two configurations, and a memory to write into."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.memory = Memory(graph)
        self.lane = self.memory.lane()
        self.scope = self.memory.scope(self.lane)
        self.config = self.memory.configuration(self.lane, impl="chunked", block=128)
        self.near = self.memory.configuration(self.lane, impl="chunked", block=256)
        self.far = self.memory.configuration(self.lane, impl="splash", block=512)

    def open_experiment(self, **columns: object) -> int:
        hypothesis = self.memory.hypothesis(self.lane, self.scope, self.config)
        return self.memory.experiment("attention/0001", self.lane, self.scope, self.config, hypothesis, **columns)

    def told(self, name: str) -> None:
        """A supported, filed experiment with the nodes and edges that readers see."""
        experiment = self.memory.finished(name, self.lane, self.scope, self.config, filed=False)
        self.graph.put_nodes([NewNode(f"verdict:{name}", "verdict", "supported", "test"), NewNode(f"meas:{name}/s1024", "measurement", "1 ms", "test")])
        hypothesis = self.graph.node_by_key(self.graph.value("SELECT hypothesis FROM experiment WHERE key = ?", experiment)).id
        ends = [("produced", f"verdict:{name}"), ("produced", f"meas:{name}/s1024"), ("supports", hypothesis)]
        self.graph.put_edges(NewEdge(f"exp:{name}", type_, dst, "test") for type_, dst in ends)
        self.memory.file(experiment)

    def everything(self) -> list[list[tuple[object, ...]]]:
        tables = ("node", "edge", "hypothesis", "experiment", "configuration", "scope", "lane", "verdict", "gate", "receipt", "measurement", "comparison")
        return [self.graph.rows(f"SELECT * FROM {table}") for table in tables]


@pytest.fixture
def setting(graph: Graph) -> Setting:
    return Setting(graph)


def supported_with(**different: object) -> Callable[[Setting], None]:
    def attempt(s: Setting) -> None:
        s.memory.finished("attention/0001", s.lane, s.scope, s.config, **different)  # type: ignore[arg-type]

    return attempt


def no_comparison(s: Setting) -> None:
    experiment = s.open_experiment()
    gated = s.memory.receipt(experiment, 0, "gates", gates=[{"name": n, "result": "pass"} for n in ("mechanism", "parity")])
    for gate in ("mechanism", "parity"):
        s.memory.gate(experiment, gate, "pass", gated)
    s.memory.verdict(experiment, receipt=gated)


def guard_broken(s: Setting) -> None:
    experiment = s.open_experiment()
    s.graph.insert("guard", experiment=experiment, metric="compile_s", value=11.0, bound=10.0)
    gated = s.memory.receipt(experiment, 0, "gates", gates=[{"name": n, "result": "pass"} for n in ("mechanism", "parity")], verdict="supported")
    for gate in ("mechanism", "parity"):
        s.memory.gate(experiment, gate, "pass", gated)
    a, b = s.memory.measurement(experiment, "candidate", s.scope), s.memory.measurement(experiment, "baseline", s.scope)
    s.memory.comparison(experiment, a, b)
    s.memory.verdict(experiment, receipt=gated)


def without_receipt(s: Setting) -> None:
    experiment = s.memory.finished("attention/0001", s.lane, s.scope, s.config, "inconclusive", filed=False)
    s.graph.execute("DELETE FROM comparison WHERE experiment = ?", experiment)
    other = s.memory.experiment("attention/0002", s.lane, s.scope, s.config, s.graph.value("SELECT key FROM hypothesis"))
    a, b = s.memory.measurement(other, "candidate", s.scope), s.memory.measurement(other, "baseline", s.scope)
    s.memory.comparison(other, a, b, speedup=0.5, ci_low=0.4, ci_high=0.6)
    s.memory.verdict(other, "refuted")


def forged_receipt(s: Setting) -> None:
    s.graph.insert("receipt", sha="0" * 64, experiment=s.open_experiment(), seq=0, prev="", step="gates", body='{"prev":""}')


def broken_chain(s: Setting) -> None:
    experiment = s.open_experiment()
    s.memory.receipt(experiment, 0, "trace")
    s.memory.receipt(experiment, 1, "gates", prev="f" * 64)


def skipped_receipt(s: Setting) -> None:
    experiment = s.open_experiment()
    s.memory.receipt(experiment, 3, "gates")


def artefact_absent(s: Setting) -> None:
    s.graph.insert("artefact", experiment=s.open_experiment(), role="hlo", sha="a" * 64, bytes=1)


def artefact_changed(s: Setting) -> None:
    experiment = s.open_experiment()
    sha = s.graph.objects.put(b"HloModule m")
    s.graph.objects.path(sha).write_bytes(b"tampered")
    s.graph.insert("artefact", experiment=experiment, role="hlo", sha=sha, bytes=11)


def receipt_names_other_artefact(s: Setting) -> None:
    experiment = s.open_experiment()
    s.memory.artefact(experiment, "hlo", b"HloModule real")
    gated = s.memory.receipt(
        experiment, 0, "gates", artefacts={"hlo": "b" * 64}, verdict="supported", gates=[{"name": n, "result": "pass"} for n in ("mechanism", "parity")]
    )
    for gate in ("mechanism", "parity"):
        s.memory.gate(experiment, gate, "pass", gated)
    a, b = s.memory.measurement(experiment, "candidate", s.scope), s.memory.measurement(experiment, "baseline", s.scope)
    s.memory.comparison(experiment, a, b)
    s.memory.verdict(experiment, receipt=gated)


def gate_not_in_receipt(s: Setting) -> None:
    experiment = s.open_experiment()
    gated = s.memory.receipt(experiment, 0, "gates", gates=[{"name": "parity", "result": "fail"}])
    s.memory.gate(experiment, "parity", "pass", gated)


def across_scopes(s: Setting) -> None:
    experiment = s.memory.finished("attention/0001", s.lane, s.scope, s.config, filed=False)
    elsewhere = s.memory.scope(s.lane, "v6e")
    other = s.memory.finished("attention/0002", s.lane, elsewhere, s.config, filed=False)
    a = s.graph.value("SELECT key FROM measurement WHERE experiment = ?", experiment)
    b = s.graph.value("SELECT key FROM measurement WHERE experiment = ?", other)
    s.memory.comparison(experiment, a, b)


def across_op_points(s: Setting) -> None:
    experiment = s.open_experiment()
    a, b = s.memory.measurement(experiment, "candidate", s.scope), s.memory.measurement(experiment, "baseline", s.scope, op_point="s2048")
    s.memory.comparison(experiment, a, b)


def foreign_measurement_scope(s: Setting) -> None:
    s.memory.measurement(s.open_experiment(), "candidate", s.memory.scope(s.lane, "v6e"))


def same_change_again(s: Setting) -> None:
    s.memory.hypothesis(s.lane, s.scope, s.config)
    s.memory.hypothesis(s.lane, s.scope, s.config, name="again")


def same_news_again(s: Setting) -> None:
    s.memory.hypothesis(s.lane, s.scope, s.config)
    s.memory.hypothesis(s.lane, s.scope, s.config, whats_new="new compiler")
    s.memory.hypothesis(s.lane, s.scope, s.config, whats_new="new compiler", name="again")


def experiment_of_another_configuration(s: Setting) -> None:
    hypothesis = s.memory.hypothesis(s.lane, s.scope, s.config)
    s.memory.experiment("attention/0001", s.lane, s.scope, s.far, hypothesis)


def refuted_then_ruled(configuration: str, scope: str) -> Callable[[Setting], None]:
    def attempt(s: Setting) -> None:
        experiment = s.memory.finished("attention/0001", s.lane, s.scope, s.config, "refuted", comparison={"speedup": 0.5, "ci_low": 0.4, "ci_high": 0.6})
        where = s.scope if scope == "same" else s.memory.scope(s.lane, "v6e")
        hypothesis = s.memory.hypothesis(s.lane, where, getattr(s, configuration))
        s.graph.insert("ruling", hypothesis=hypothesis, experiment=experiment)

    return attempt


def ruled_by_supported(s: Setting) -> None:
    experiment = s.memory.finished("attention/0001", s.lane, s.scope, s.config)
    s.graph.insert("ruling", hypothesis=s.memory.hypothesis(s.lane, s.scope, s.near), experiment=experiment)


def merged_at_birth(s: Setting) -> None:
    s.open_experiment(merge_state="merged")


def candidate_without_support(s: Setting) -> None:
    experiment = s.memory.finished("attention/0001", s.lane, s.scope, s.config, "inconclusive")
    s.graph.execute("UPDATE experiment SET merge_state = 'candidate' WHERE key = ?", experiment)


def merged_without_model(s: Setting) -> None:
    experiment = s.memory.finished("attention/0001", s.lane, s.scope, s.config)
    s.graph.execute("UPDATE experiment SET merge_state = 'candidate' WHERE key = ?", experiment)
    s.graph.execute("UPDATE experiment SET merge_state = 'merged' WHERE key = ?", experiment)


def quarantined_support(s: Setting) -> None:
    experiment = s.open_experiment(quarantined="no parity")
    gated = s.memory.receipt(experiment, 0, "gates", verdict="supported", gates=[{"name": n, "result": "pass"} for n in ("mechanism", "parity")])
    for gate in ("mechanism", "parity"):
        s.memory.gate(experiment, gate, "pass", gated)
    a, b = s.memory.measurement(experiment, "candidate", s.scope), s.memory.measurement(experiment, "baseline", s.scope)
    s.memory.comparison(experiment, a, b)
    s.memory.verdict(experiment, receipt=gated)


def crashed_but_refuted(s: Setting) -> None:
    s.memory.verdict(s.open_experiment(outcome="crashed"), "refuted")


def edge_without_verdict(s: Setting) -> None:
    s.open_experiment()
    hypothesis = s.graph.value("SELECT id FROM node WHERE kind = 'hypothesis'")
    s.graph.put_edges([NewEdge("exp:attention/0001", "supports", hypothesis, "test")])


def ruling_turned(s: Setting) -> None:
    refuted_then_ruled("near", "same")(s)
    s.graph.execute("UPDATE ruling SET hypothesis = ?", s.memory.hypothesis(s.lane, s.scope, s.far))


def hypothesis_moved_onto_a_tried_one(s: Setting) -> None:
    s.memory.hypothesis(s.lane, s.scope, s.config)
    moved = s.memory.hypothesis(s.lane, s.scope, s.far)
    s.graph.execute("UPDATE hypothesis SET configuration = ? WHERE key = ?", s.config, moved)


def support_of_another_hypothesis(s: Setting) -> None:
    s.told("attention/0001")
    other = s.graph.node_by_key(s.memory.hypothesis(s.lane, s.scope, s.far)).id
    s.graph.put_edges([NewEdge("exp:attention/0001", "supports", other, "test")])


def an_edge_turned_into_support(s: Setting) -> None:
    s.open_experiment()
    hypothesis = s.graph.value("SELECT id FROM node WHERE kind = 'hypothesis'")
    s.graph.put_edges([NewEdge("exp:attention/0001", "based_on", hypothesis, "test")])
    s.graph.execute("UPDATE edge SET type = 'supports' WHERE type = 'based_on'")


REFUSALS = [
    ("a ruling turned into another", ruling_turned, "not edited"),
    ("a hypothesis moved onto a tried one", hypothesis_moved_onto_a_tried_one, "not rewritten"),
    ("support of another hypothesis", support_of_another_hypothesis, "its own hypothesis"),
    ("an edge turned into support", an_edge_turned_into_support, "not edited"),
    ("supported without a mandatory gate", supported_with(gates={"mechanism": "pass"}), "each mandatory gate"),
    ("supported without the mechanism", supported_with(gates={"parity": "pass"}), "mandatory gate|mechanism fired"),
    ("supported though the gate doesn't apply", supported_with(gates={"mechanism": "pass", "parity": "not_applicable"}), "each mandatory gate"),
    ("supported though a gate failed", supported_with(gates={"mechanism": "pass", "parity": "fail"}), "only verdict is invalid|mandatory gate"),
    ("refuted though a gate failed", supported_with(gates={"mechanism": "pass", "parity": "fail"}, verdict="refuted"), "only verdict is invalid"),
    ("supported within noise", supported_with(comparison={"speedup": 1.04, "ci_low": 1.01, "ci_high": 1.06}), "noise floor"),
    ("supported with an interval across 1", supported_with(comparison={"speedup": 1.2, "ci_low": 0.9, "ci_high": 1.5}), "noise floor"),
    ("an estimate outside its interval", supported_with(comparison={"speedup": 3.0}), "breaks a rule"),
    ("no comparison", no_comparison, "needs a comparison|noise floor|no receipt"),
    ("a guard beyond its bound", guard_broken, "guarded metric"),
    ("a verdict without receipt", without_receipt, "no receipt"),
    ("a forged receipt", forged_receipt, "not the hash"),
    ("a broken chain", broken_chain, "does not follow"),
    ("a chain with a gap", skipped_receipt, "does not follow"),
    ("an artefact that isn't there", artefact_absent, "not in raw/objects"),
    ("an artefact that was changed", artefact_changed, "not in raw/objects"),
    ("a receipt of another artefact", receipt_names_other_artefact, "does not match"),
    ("a gate its receipt doesn't hold", gate_not_in_receipt, "does not hold"),
    ("numbers across scopes", across_scopes, "differ in scope"),
    ("numbers across operating points", across_op_points, "differ in scope"),
    ("a measurement of another scope", foreign_measurement_scope, "not its experiment"),
    ("the same change again", same_change_again, "say what is new"),
    ("the same news again", same_news_again, "say what is new"),
    ("an experiment of another configuration", experiment_of_another_configuration, "not its hypothesis"),
    ("a refutation elsewhere", refuted_then_ruled("near", "other"), "own scope"),
    ("a refutation far away", refuted_then_ruled("far", "same"), "too far"),
    ("a ruling by a supported experiment", ruled_by_supported, "own scope"),
    ("merged at birth", merged_at_birth, "starts unmerged"),
    ("a candidate without support", candidate_without_support, "only a supported"),
    ("merged without a model lane", merged_without_model, "not merged before"),
    ("a quarantined support", quarantined_support, "quarantined"),
    ("a crash that refutes", crashed_but_refuted, "only verdict is invalid|needs a comparison|no receipt"),
    ("an edge no verdict backs", edge_without_verdict, "no verdict says so"),
]


@pytest.mark.parametrize(("attempt", "message"), [(a, m) for _, a, m in REFUSALS], ids=[n for n, _, _ in REFUSALS])
def test_refused(setting: Setting, attempt: Callable[[Setting], None], message: str) -> None:
    with pytest.raises(Refused, match=message):
        attempt(setting)


@pytest.mark.parametrize("missing", ["op_point", "statistic", "timer"])
def test_a_measurement_names_point_statistic_and_timer(setting: Setting, missing: str) -> None:
    with pytest.raises(Refused):
        setting.memory.measurement(setting.open_experiment(), "candidate", setting.scope, **{missing: " "})


def test_a_measurement_has_samples(setting: Setting) -> None:
    with pytest.raises(Refused):
        setting.memory.measurement(setting.open_experiment(), "candidate", setting.scope, samples=0)


EDITS = [
    "UPDATE experiment SET outcome = 'crashed'",
    "UPDATE experiment SET filed = 0",
    "UPDATE experiment SET backend = 'tpu'",
    "UPDATE measurement SET value = 0.1",
    "UPDATE comparison SET speedup = 2.05",
    "UPDATE gate SET result = 'fail'",
    "UPDATE receipt SET step = 'x'",
    "UPDATE artefact SET bytes = 2",
    "UPDATE verdict SET verdict = 'refuted'",
    "DELETE FROM verdict",
    "DELETE FROM gate",
    "DELETE FROM receipt",
    "DELETE FROM artefact",
    "DELETE FROM comparison",
    "DELETE FROM measurement",
    "DELETE FROM experiment",
    "DELETE FROM node WHERE kind = 'experiment'",
    "INSERT OR REPLACE INTO verdict SELECT experiment, 'refuted', kind, reason, inputs, receipt, decided_at FROM verdict",
    "INSERT INTO guard(experiment, metric, value, bound) SELECT key, 'm', 1, 2 FROM experiment",
    "UPDATE node SET doc = 'refuted: no' WHERE kind = 'experiment'",
    "UPDATE node SET data = '{\"verdict\": \"refuted\"}' WHERE kind = 'experiment'",
    "UPDATE node SET name = 'refuted' WHERE kind = 'verdict'",
    "UPDATE node SET doc = '0.1 ms' WHERE kind = 'measurement'",
    "UPDATE edge SET type = 'refutes' WHERE type = 'supports'",
    "UPDATE hypothesis SET falsification = 'whatever happened'",
    "UPDATE hypothesis SET predicted_signal = 'what was seen'",
    "UPDATE hypothesis SET expected_gain = 1.0",
    "UPDATE hypothesis SET configuration = (SELECT key FROM configuration ORDER BY key DESC LIMIT 1)",
    "DELETE FROM hypothesis",
    "UPDATE configuration SET knobs = '{}'",
    "UPDATE scope SET chip = 'v6e'",
    "UPDATE lane SET kind = 'model'",
    "INSERT INTO measurement SELECT NULL, experiment, leg, scope, 'other', metric, unit, statistic, value, samples, timer, device FROM measurement LIMIT 1",
]


@pytest.mark.parametrize("statement", EDITS)
def test_filed_means_filed(setting: Setting, statement: str) -> None:
    setting.told("attention/0001")
    before = setting.everything()
    with pytest.raises(Refused):
        setting.graph.execute(statement)
    assert setting.everything() == before


def test_a_sound_experiment_is_accepted_and_leads(setting: Setting) -> None:
    experiment = setting.memory.finished("attention/0001", setting.lane, setting.scope, setting.config)
    assert setting.graph.rows("SELECT experiment, speedup_vs_reference FROM frontier") == [(experiment, 2.0)]
    setting.graph.put_edges(
        [NewEdge("exp:attention/0001", "supports", setting.graph.node_by_key(setting.graph.value("SELECT key FROM hypothesis")).id, "test")]
    )


def test_a_refuted_mechanism_can_hold_the_frontier(setting: Setting) -> None:
    setting.memory.finished("attention/0001", setting.lane, setting.scope, setting.config)
    faster = setting.memory.finished(
        "attention/0002",
        setting.lane,
        setting.scope,
        setting.near,
        "refuted",
        comparison={"speedup": 3.0, "ci_low": 2.9, "ci_high": 3.1, "speedup_vs_reference": 6.0},
    )
    assert setting.graph.value("SELECT experiment FROM frontier") == faster


@pytest.mark.parametrize(
    "different",
    [
        {"comparison": {"speedup": 1.01, "ci_low": 0.99, "ci_high": 1.03, "speedup_vs_reference": 9.0}, "verdict": "inconclusive"},
        {"gates": {"mechanism": "pass", "parity": "fail"}, "verdict": "invalid"},
    ],
    ids=["within noise", "failed gate"],
)
def test_the_frontier_takes_only_sound_and_faster(setting: Setting, different: dict[str, object]) -> None:
    sound = setting.memory.finished("attention/0001", setting.lane, setting.scope, setting.config)
    setting.memory.finished("attention/0002", setting.lane, setting.scope, setting.near, **different)  # type: ignore[arg-type]
    assert setting.graph.value("SELECT experiment FROM frontier") == sound


def test_a_near_refutation_in_scope_rules(setting: Setting) -> None:
    refuted_then_ruled("near", "same")(setting)
    assert setting.graph.value("SELECT count(*) FROM ruling") == 1


def test_a_repeat_that_says_what_is_new_is_taken(setting: Setting) -> None:
    setting.memory.hypothesis(setting.lane, setting.scope, setting.config)
    setting.memory.hypothesis(setting.lane, setting.scope, setting.config, whats_new="jax moved from 0.10 to 0.12")
    assert setting.graph.value("SELECT count(*) FROM hypothesis") == 2


def test_merged_through_a_supported_model_lane(setting: Setting) -> None:
    win = setting.memory.finished("attention/0001", setting.lane, setting.scope, setting.config)
    setting.graph.execute("UPDATE experiment SET merge_state = 'candidate' WHERE key = ?", win)
    model = setting.memory.lane("flax_lm", "model")
    model_experiment = setting.memory.finished(
        "flax_lm/0001", model, setting.memory.scope(model, "m"), setting.memory.configuration(model, attention="chunked")
    )
    setting.graph.put_edges([NewEdge("exp:flax_lm/0001", "uses", "exp:attention/0001", "test")])
    setting.graph.execute("UPDATE experiment SET merge_state = 'merged', merged_by = ? WHERE key = ?", model_experiment, win)
    assert setting.graph.value("SELECT merge_state FROM experiment WHERE key = ?", win) == "merged"


def test_a_stray_shell_cannot_forge_a_receipt(setting: Setting) -> None:
    setting.memory.finished("attention/0001", setting.lane, setting.scope, setting.config)
    stray = sqlite3.connect(setting.graph.workspace.graph_db)
    with pytest.raises(sqlite3.OperationalError, match="kg_sha256"):
        stray.execute("INSERT INTO receipt VALUES ('x', 1, 9, '', 's', '{}')")
    stray.close()
    assert NOW
