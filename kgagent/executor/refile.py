"""Fill a rebuilt graph with the experiments that raw/ tells of, through the same refusing tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kgagent.errors import KgError, StorageError
from kgagent.executor.filing import file_experiment, filed, write_subject
from kgagent.executor.kept import kept_hypotheses
from kgagent.executor.preflight import refile_preflights
from kgagent.executor.receipts import SUMS, Receipt, read_chain
from kgagent.executor.records import Problem
from kgagent.graph import Graph


@dataclass(frozen=True, slots=True)
class RefileReport:
    """What came back, and what could not."""

    experiments: int
    preflights: int
    problems: tuple[Problem, ...]


def refile(graph: Graph) -> int:
    """File what isn't filed yet and return how many experiments that was; `StorageError` tells of what could not be, after the rest is in."""
    report = refile_all(graph)
    if report.problems:
        told = "; ".join(f"{problem.what} ({problem.where})" for problem in report.problems)
        what = f"{len(report.problems)} runs can't be filed again: {told}"
        raise StorageError(what, where=str(graph.workspace.runs), hint="kgagent verify says what changed")
    return report.experiments


def refile_all(graph: Graph) -> RefileReport:
    """Hypotheses, experiments and preflights, in the order they happened; damage is told and never stops the rest."""
    chains: list[tuple[Receipt, ...]] = []
    wrong: list[KgError] = []
    for folder in sorted(path for path in graph.workspace.runs.glob("*") if (path / SUMS).is_file()):
        try:
            chains.append(read_chain(folder))
        except StorageError as error:
            wrong.append(error)
    missing = [chain for chain in chains if not filed(graph, str(chain[0].told["experiment"]))]
    wrong += _subjects(graph, missing)
    done = 0
    for chain in sorted(missing, key=lambda chain: str(chain[0].told["started_at"])):
        try:
            file_experiment(graph, chain, lane_as_judged=True)
            done += 1
        except KgError as error:
            wrong.append(_placed(error, str(chain[0].told["experiment"]), _baseline(chain)))
    preflights = 0
    try:
        preflights = refile_preflights(graph)
    except KgError as error:
        wrong.append(error)
    return RefileReport(done, preflights, tuple(Problem(error.where, error.what) for error in wrong))


def _baseline(chain: tuple[Receipt, ...]) -> str:
    baseline = chain[0].told.get("baseline")
    return str(baseline["experiment"]) if baseline else ""


def _placed(error: KgError, experiment: str, baseline: str) -> KgError:
    """The same, naming the run it is of; one measured against a run that isn't there says so."""
    if baseline and f"'{baseline}'" in error.what:
        return StorageError(f"it was measured against {baseline}, which is not there", where=experiment)
    return StorageError(error.what, where=f"{experiment}{f', {error.where}' if error.where else ''}")


def _subjects(graph: Graph, missing: list[tuple[Receipt, ...]]) -> list[KgError]:
    """Hypotheses in the order they were written: a later one says what is new against an earlier one."""
    wrong: list[KgError] = []
    try:
        kept = kept_hypotheses(graph.workspace)
    except StorageError as error:
        kept = []
        wrong.append(error)
    for subject in sorted([*kept, *(chain[0].told for chain in missing)], key=_written_at):
        try:
            with graph.transaction():
                write_subject(graph, subject, lane_as_judged=True)
        except KgError as error:
            wrong.append(error)
    return wrong


def _written_at(subject: dict[str, Any]) -> str:
    return str(subject["hypothesis"]["created_at"] if subject["hypothesis"] else subject["started_at"])
