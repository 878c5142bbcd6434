"""Fill a rebuilt graph with the experiments that raw/runs tells of, through the same refusing tables."""

from __future__ import annotations

from typing import Any

from kgagent.errors import KgError, StorageError
from kgagent.executor.filing import file_experiment, filed, write_subject
from kgagent.executor.kept import kept_hypotheses
from kgagent.executor.receipts import SUMS, Receipt, read_chain
from kgagent.graph import Graph


def refile(graph: Graph) -> int:
    """File what isn't filed yet, in the order it happened; returns how many. Damaged chains are told together, after the sound ones are in."""
    chains: list[tuple[Receipt, ...]] = []
    wrong: list[KgError] = []
    for sums in sorted(graph.workspace.runs.glob(f"*/{SUMS}")):
        try:
            chains.append(read_chain(sums.parent))
        except StorageError as error:
            wrong.append(error)
    missing = [chain for chain in chains if not filed(graph, str(chain[0].told["experiment"]))]
    # hypotheses in the order they were written: a later one says what is new against an earlier one
    subjects = [*kept_hypotheses(graph.workspace), *(chain[0].told for chain in missing)]
    for subject in sorted(subjects, key=_written_at):
        with graph.transaction():
            write_subject(graph, subject, lane_as_judged=True)
    done = 0
    for chain in sorted(missing, key=lambda chain: str(chain[0].told["started_at"])):
        try:
            file_experiment(graph, chain, lane_as_judged=True)
            done += 1
        except KgError as error:
            wrong.append(error)
    if wrong:
        told = "; ".join(f"{error.what} ({error.where})" for error in wrong)
        raise StorageError(
            f"{len(wrong)} of {len(chains) + len(wrong)} runs can't be filed again: {told}", where=str(graph.workspace.runs), hint="kgagent verify"
        )
    return done


def _written_at(subject: dict[str, Any]) -> str:
    return str(subject["hypothesis"]["created_at"] if subject["hypothesis"] else subject["started_at"])
