"""The loop: plan, run the best, learn, plan again, until the budget is spent or nothing is open."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from kgagent.executor import ExperimentReport, ensure_reference, frontier, one_loop, resume, run_experiment
from kgagent.graph import Graph
from kgagent.lanes import Lane
from kgagent.planner.plan import plan
from kgagent.planner.propose import spelled
from kgagent.planner.records import Ranked

Progress = Callable[[str], None]
FAMILY_LEAD = 1.5  # a lever just tried must score this much better than the best other one to go again


@dataclass(frozen=True, slots=True)
class LoopReport:
    """What the loop ran, in order, and where the frontier stands; `stopped` says why it ended."""

    lane: str
    reports: tuple[ExperimentReport, ...]
    frontier: str
    frontier_speedup: float
    stopped: str


def loop(graph: Graph, lane: Lane, *, experiments: int, minutes: float | None = None, progress: Progress | None = None) -> LoopReport:
    """Run up to `experiments`, best first; what an earlier loop left half-done is finished first. A second loop is `Busy`."""
    with one_loop(graph.workspace):
        return _loop(graph, lane, experiments, minutes, progress or (lambda line: None))


def _loop(graph: Graph, lane: Lane, experiments: int, minutes: float | None, say: Progress) -> LoopReport:
    started = time.monotonic()
    reports: list[ExperimentReport] = list(resume(graph, progress=say))
    ensure_reference(graph, lane, progress=say)
    stopped = f"budget of {experiments} experiments spent"
    done = [r for r in reports if r.role == "trial"]
    while len(done) < experiments:
        if minutes is not None and time.monotonic() - started > minutes * 60:
            stopped = f"budget of {minutes:g} minutes spent"
            break
        ranked = plan(graph, lane).ranked
        if not ranked:
            stopped = "nothing open: every single move from the frontier was tried"
            break
        choice = _spread(ranked, [r.hypothesis for r in done], graph)
        say(f"experiment {len(done) + 1} of {experiments}: {spelled(choice.knobs)}")
        done.append(run_experiment(graph, lane, choice.hypothesis, progress=say))
        reports.append(done[-1])
    best = frontier(graph, lane)
    where = f"{best.experiment}, {best.speedup_vs_reference:.2f}x the reference (cpu): {spelled(best.knobs)}" if best else "none"
    return LoopReport(lane.name, tuple(reports), where, best.speedup_vs_reference if best else 1.0, stopped)


def _spread(ranked: tuple[Ranked, ...], run: list[str | None], graph: Graph) -> Ranked:
    """The best, unless its lever was the last one tried and another is close: bets are spread over levers."""
    best = ranked[0]
    last = graph.value("SELECT h.lever FROM hypothesis h JOIN node n ON n.key = h.key WHERE n.id = ?", run[-1]) if run and run[-1] else None
    if best.lever != last:
        return best
    other = next((r for r in ranked if r.lever != last), None)
    return other if other and other.score * FAMILY_LEAD >= best.score else best
