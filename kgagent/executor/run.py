"""One experiment from hypothesis to filed verdict, as steps of the journal that can be cut anywhere and gone on from.

Each step's result is stored before the next relies on it; a step that was cut is done again from the same inputs.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import Any

from kgagent.errors import CandidateError, Refused, Unavailable, UnknownThing, UsageError
from kgagent.executor import decode
from kgagent.executor.branches import commit_experiment
from kgagent.executor.filing import file_experiment
from kgagent.executor.frontier import reference_experiment
from kgagent.executor.gates import check_rules, judge
from kgagent.executor.journal import Journal, now, one_loop
from kgagent.executor.judging import evidence_of, judge_body, narrate
from kgagent.executor.memory import cpu_scope
from kgagent.executor.plan import TIMED_PROGRAM, make_plan, next_experiment
from kgagent.executor.receipts import Receipt, chain, write_chain
from kgagent.executor.records import ExperimentReport, GateResult, Pair, Progress
from kgagent.executor.report import experiment_report
from kgagent.executor.snapshot import stored_lane
from kgagent.executor.stats import noise_floor_frac
from kgagent.executor.workers import run_worker, scratch_folder
from kgagent.graph import Graph, plain
from kgagent.lanes import Lane, sync_lane, trace
from kgagent.lanes.records import OpPoint
from kgagent.objects import canonical_json

SEED_BITS = 31


def ensure_reference(graph: Graph, lane: Lane, *, progress: Progress | None = None) -> str:
    """The reference experiment at this machine's scope, run once; a reference that fails its own gates is an error."""
    found = reference_experiment(graph, lane)
    if found is not None:
        return found
    with one_loop(graph.workspace), Journal(graph.workspace) as journal:
        return _ensure_reference(graph, journal, lane, progress or _silent)


def run_experiment(graph: Graph, lane: Lane, hypothesis_id: str, *, progress: Progress | None = None, rerun: bool = False) -> ExperimentReport:
    """Run an open hypothesis against the frontier, or go on with its cut run; `rerun` measures a decided one again, as a new experiment."""
    say = progress or _silent
    with one_loop(graph.workspace), Journal(graph.workspace) as journal:
        _ensure_reference(graph, journal, lane, say)
        cut = next((run for run in journal.open_runs() if run.hypothesis == hypothesis_id), None)
        if cut is not None:
            return Run(graph, journal, lane, cut.id, hypothesis_id, say).resume()
        earlier = _earlier(graph, hypothesis_id)
        if earlier is not None and not rerun:
            raise Refused(f"{hypothesis_id} was decided by {earlier}", hint="a filed experiment is not edited; rerun it to make a new one")
        return Run(graph, journal, lane, next_experiment(graph, journal, lane.name), hypothesis_id, say, rerun_of=earlier).go()


def resume(graph: Graph, *, progress: Progress | None = None) -> tuple[ExperimentReport, ...]:
    """Finish every experiment that was cut, oldest first, with the lane's files as they were when it was planned."""
    with one_loop(graph.workspace), Journal(graph.workspace) as journal:
        reports = []
        for cut in journal.open_runs():
            if journal.done(cut.id, "plan") is None and cut.hypothesis is not None and graph.node(cut.hypothesis) is None:
                journal.drop(cut.id)  # cut before its plan, and its hypothesis went with a lost graph
                continue
            reports.append(Run(graph, journal, None, cut.id, cut.hypothesis, progress or _silent, lane_name=cut.lane).resume())
        return tuple(reports)


def _silent(line: str) -> None:
    del line


def _earlier(graph: Graph, hypothesis: str) -> str | None:
    """The newest filed experiment of a hypothesis; vetoed ones are refused."""
    graph.need(hypothesis)
    if graph.value("SELECT h.status FROM hypothesis h JOIN node n ON n.key = h.key WHERE n.id = ?", hypothesis) == "vetoed":
        raise Refused(f"{hypothesis} was vetoed")
    found = graph.value(
        "SELECT n.id FROM experiment e JOIN node n ON n.key = e.key JOIN node h ON h.key = e.hypothesis WHERE h.id = ? ORDER BY e.key DESC LIMIT 1", hypothesis
    )
    return str(found) if found else None


def _ensure_reference(graph: Graph, journal: Journal, lane: Lane, say: Progress) -> str:
    check_rules(lane)
    found = reference_experiment(graph, lane)
    if found is not None:
        return found
    sync_lane(graph, lane)
    cut = next((run for run in journal.open_runs() if run.hypothesis is None and run.lane == lane.name), None)
    experiment = cut.id if cut else next_experiment(graph, journal, lane.name)
    report = Run(graph, journal, lane, experiment, None, say).resume() if cut else Run(graph, journal, lane, experiment, None, say).go()
    wrong = [gate for gate in report.gates if gate.result == "fail"]
    if report.outcome != "completed" or wrong:
        told = report.reason or "; ".join(f"gate {gate.name} failed: {gate.detail}" for gate in wrong)
        limited = report.outcome in ("timeout", "flooded", "out_of_memory")
        hint = "repair reference.py or inputs.py" + (", or raise the limit in [budgets] of lane.toml" if limited else "")
        raise CandidateError(f"lane {lane.name}'s own reference is unsound: {told}", where=str(lane.folder), hint=hint)
    return report.experiment


class Run:
    """One experiment in motion; its state is the journal's."""

    def __init__(
        self,
        graph: Graph,
        journal: Journal,
        lane: Lane | None,
        experiment: str,
        hypothesis: str | None,
        say: Progress,
        *,
        rerun_of: str | None = None,
        lane_name: str = "",
    ) -> None:
        self.graph, self.journal, self.say = graph, journal, say
        self.experiment, self.hypothesis, self.rerun_of = experiment, hypothesis, rerun_of
        self.planned_lane, self.lane_name = lane, lane.name if lane else lane_name
        self.objects = graph.objects

    def resume(self) -> ExperimentReport:
        self.say(f"{self.experiment}: going on after {', '.join(self.journal.steps(self.experiment)) or 'nothing'}")
        return self.go()

    def go(self) -> ExperimentReport:
        """All steps in order; whole ones are read back."""
        self.journal.open(self.experiment, self.lane_name, self.hypothesis)
        try:
            plan = self._step("plan", self._plan)
        except (Refused, UsageError, Unavailable):
            self.journal.drop(self.experiment)  # refused before it began: nothing to go on with
            raise
        lane = stored_lane(self.graph.workspace, self.lane_name, plan)
        self.say(plan["title"])
        committed = self._step("commit", lambda: self._commit(lane, plan))
        traced = self._step("trace", lambda: self._trace(lane, plan))
        seeds = self._step("seeds", lambda: self._seeds(lane))
        outcome, detail = traced["outcome"], traced["message"]
        moved = self._moved(lane, plan) if self.journal.done(self.experiment, "judge") is None else ""
        if moved:
            outcome, detail = "cancelled", moved
        checked: dict[str, Any] = {}
        early: tuple[GateResult, ...] = ()
        pairs: list[Pair] = []
        floor: dict[str, Any] = {"floor_frac": 0.0, "pairs": [], "measured_at": "", "place": ""}
        if outcome == "completed":
            checked = self._step("check", lambda: self._check(lane, traced, seeds))
            outcome, detail = checked["outcome"], checked["message"]
        if outcome == "completed":
            early = judge(evidence_of(self.objects, lane, plan, checked), "before")
            if all(gate.result != "fail" for gate in early):
                floor = self._step("noise", lambda: self._noise(lane, plan, traced, seeds))
                outcome, detail, pairs = self._time(lane, plan, traced, seeds, floor)
        judged = self._step("judge", lambda: self._judge(lane, plan, checked, early, pairs, floor, outcome, detail))
        timing = {"pairs": [plain(pair) for pair in pairs], "noise": floor, "seeds": seeds["timing"], "artefacts": {}}
        receipts = chain(
            self.experiment,
            [
                ("plan", {**plan, **committed}),
                ("trace", {**_but(traced, "programs"), "artefacts": traced["programs"]}),
                ("check", {**_but(checked, "artefacts"), "seeds": seeds["check"], "artefacts": checked.get("artefacts", {})}),
                ("timing", timing),
                ("judge", {**judged, "artefacts": {}}),
            ],
        )
        return self._file(receipts, judged)

    def _moved(self, lane: Lane, plan: dict[str, Any]) -> str:
        """Why a run that was cut can't go on: it would file numbers of one machine or jax under the scope of another. '' when it can."""
        here = cpu_scope(lane)
        if here.id == plan["scope_id"]:
            return ""
        was, now_ = plan["scope"], plain(here)
        parts = [f"{name} {was[name] or 'none'}, now {now_[name] or 'none'}" for name in ("chip", "topology", "jax") if was[name] != now_[name]]
        return f"it was planned on {'; '.join(parts) or 'another scope'}"

    def _file(self, receipts: tuple[Receipt, ...], judged: dict[str, Any]) -> ExperimentReport:
        self._step("receipts", lambda: {"folder": str(write_chain(self.graph.workspace, self.experiment, receipts)), "head": receipts[-1].sha})
        file_experiment(self.graph, receipts)
        self.journal.close(self.experiment)
        self.say(f"{self.experiment.removeprefix('exp:')} {narrate(judged)}")
        return experiment_report(self.graph, self.experiment)

    def _step(self, name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        payload = self.journal.done(self.experiment, name)
        if payload is None:
            self.journal.begin(self.experiment, name)
            payload = work()
            self.journal.finish(self.experiment, name, payload)
        return payload

    def _plan(self) -> dict[str, Any]:
        if self.planned_lane is None:
            from kgagent.lanes import load_lane

            self.planned_lane = load_lane(self.graph.workspace, self.lane_name)
        if self.hypothesis is not None and self.graph.node(self.hypothesis) is None:
            raise UnknownThing(f"no hypothesis {self.hypothesis}", hint="kgagent plan LANE lists them")
        plan = make_plan(self.graph, self.planned_lane, self.experiment, self.hypothesis, self.rerun_of)
        if self.hypothesis is not None:
            with self.graph.transaction():
                self.graph.execute("UPDATE hypothesis SET status = 'running' WHERE key = ?", self.graph.key(self.hypothesis))
        return plan

    def _commit(self, lane: Lane, plan: dict[str, Any]) -> dict[str, Any]:
        """The candidate as a commit on its own branch, above the frontier it is measured against."""
        configuration = {name: plan["configuration"][name] for name in ("knobs", "flags")}
        folder = f"lanes/{lane.name}"
        files = {f"{folder}/{name}": data for name, data in lane.files.items()}
        files[f"{folder}/configuration.json"] = (json.dumps(configuration, indent=2, sort_keys=True) + "\n").encode()
        statement = plan["hypothesis"]["statement"] if plan["hypothesis"] else "The reference, against which all else is measured."
        footer = [f"exp: {self.experiment.removeprefix('exp:')}", f"configuration: {plan['configuration']['digest']}"]
        footer += [f"hypothesis: {plan['hypothesis']['id']}"] if plan["hypothesis"] else []
        message = f"exp {plan['title']}\n\n{statement}\n\n" + "\n".join(footer) + "\n"
        parent = plan["baseline"]["commit"] if plan["baseline"] else ""
        return {"commit": commit_experiment(self.graph.workspace, plan["branch"], files, message, parent=parent, date=plan["started_at"])}

    def _trace(self, lane: Lane, plan: dict[str, Any]) -> dict[str, Any]:
        self.say("tracing in its own process")
        knobs = None if plan["role"] == "reference" else plan["configuration"]["knobs"]
        with scratch_folder(self.graph.workspace) as scratch:
            traced = trace(lane, knobs, platform=plan["backend"], scratch=scratch)
        names = [_program_role(index, export.op_point) for index, export in enumerate(traced.exports)]
        programs = {name: self.objects.put(export.stablehlo) for name, export in zip(names, traced.exports, strict=True)}
        return {"outcome": traced.outcome, "message": traced.message, "wall_s": traced.wall_s, "programs": programs}

    def _seeds(self, lane: Lane) -> dict[str, Any]:
        """Drawn after the candidate is fixed, and never shown to it."""
        parity = lane.gate("parity")
        count = max(1, int(parity.number("seeds", 2))) if parity else 1
        return {
            "check": {point.name: [secrets.randbits(SEED_BITS) for _ in range(count)] for point in lane.points("cpu")},
            "timing": [secrets.randbits(SEED_BITS) for _ in range(lane.budgets.pairs)],
            "noise": [secrets.randbits(SEED_BITS) for _ in range(lane.budgets.aa_pairs)],
        }

    def _check(self, lane: Lane, traced: dict[str, Any], seeds: dict[str, Any]) -> dict[str, Any]:
        self.say("checking against the float64 oracle on hidden seeds")
        points = lane.points("cpu")
        job = {
            "mode": "check",
            "points": [
                {"name": p.name, "role": p.role, "fields": p.mapping(), "seeds": seeds["check"][p.name], "program": f"{i}.stablehlo"}
                for i, p in enumerate(points)
            ],
        }
        programs = {f"{i}.stablehlo": traced["programs"][_program_role(i, p.name)] for i, p in enumerate(points)}
        done = run_worker(self.graph.workspace, lane, job, programs, ("observations.json", "program.hlo"))
        told: dict[str, Any] = {"outcome": done.outcome, "message": done.message, "wall_s": done.wall_s, "artefacts": {}}
        if done.outcome == "completed":
            told |= {"observations": self.objects.put(done.files["observations.json"]), "hlo": self.objects.put(done.files["program.hlo"])}
            told["artefacts"] = {"observations": told["observations"], "hlo": told["hlo"]}
        return told

    def _noise(self, lane: Lane, plan: dict[str, Any], traced: dict[str, Any], seeds: dict[str, Any]) -> dict[str, Any]:
        """The A/A noise floor of this lane, scope and day: the baseline timed against itself."""
        place = f"{plan['scope_id']} {now()[:10]}"
        kept = self.journal.noise(place)
        if kept is not None:
            return kept
        self.say("measuring the noise floor: the baseline against itself")
        program = plan["baseline"]["program"] if plan["baseline"] else traced["programs"][TIMED_PROGRAM]
        pairs = []
        for index, seed in enumerate(seeds["noise"]):
            told = self._pair(lane, program, program, seed, index)
            if told["outcome"] != "completed":
                raise CandidateError(f"the baseline can't be timed: {told['message']}", where=self.experiment, hint="free the machine, then kgagent resume")
            pairs.append(told["pair"])
        floor = noise_floor_frac([decode.pair(told) for told in pairs])
        payload = {"floor_frac": floor, "pairs": pairs, "measured_at": now(), "place": place}
        self.journal.keep_noise(place, floor, payload)
        return payload

    def _time(self, lane: Lane, plan: dict[str, Any], traced: dict[str, Any], seeds: dict[str, Any], floor: dict[str, Any]) -> tuple[str, str, list[Pair]]:
        """Fresh process pairs, candidate first in every other one; a reference's numbers are its A/A pairs."""
        if plan["baseline"] is None:
            return "completed", "", [decode.pair(told) for told in floor["pairs"]]
        pairs: list[Pair] = []
        for index, seed in enumerate(seeds["timing"]):
            self.say(f"timing, pair {index + 1} of {len(seeds['timing'])}")

            def work(index: int = index, seed: int = seed) -> dict[str, Any]:
                return self._pair(lane, traced["programs"][TIMED_PROGRAM], plan["baseline"]["program"], seed, index)

            told = self._step(f"pair-{index}", work)
            if told["outcome"] != "completed":
                return told["outcome"], told["message"], pairs
            pairs.append(decode.pair(told["pair"]))
        return "completed", "", pairs

    def _pair(self, lane: Lane, candidate: str, baseline: str, seed: int, index: int) -> dict[str, Any]:
        timed: OpPoint = lane.points("cpu", "timed")[0]
        job = {
            "mode": "time", "candidate": "candidate.stablehlo", "baseline": "baseline.stablehlo", "seed": seed, "fields": timed.mapping(),
            "samples": lane.budgets.samples_per_pair, "first": ("candidate", "baseline")[index % 2],
        }  # fmt: skip
        done = run_worker(self.graph.workspace, lane, job, {"candidate.stablehlo": candidate, "baseline.stablehlo": baseline}, ("pair.json",))
        pair = json.loads(done.files["pair.json"]) if done.outcome == "completed" else None
        return {"outcome": done.outcome, "message": done.message, "pair": pair}

    def _judge(
        self,
        lane: Lane,
        plan: dict[str, Any],
        checked: dict[str, Any],
        early: tuple[GateResult, ...],
        pairs: list[Pair],
        floor: dict[str, Any],
        outcome: str,
        detail: str,
    ) -> dict[str, Any]:
        evidence = evidence_of(self.objects, lane, plan, checked) if "observations" in checked else None
        told = judge_body(plan, lane, outcome, detail, evidence, early, pairs, floor["floor_frac"])
        canonical_json(told)  # what can't be told canonically must fail here, before anything is filed
        return told


def _program_role(index: int, op_point: str) -> str:
    """The timed operating point comes first and has the plain role."""
    return TIMED_PROGRAM if index == 0 else f"{TIMED_PROGRAM}:{op_point}"


def _but(told: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in told.items() if name not in names}
