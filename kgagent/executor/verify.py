"""Check filed experiments offline: chains, artefacts, gates, sums, the rule, and the rows that say the same.

Nothing is run again; whoever has the workspace can do this without jax.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kgagent.errors import KgError, StorageError, UnknownThing
from kgagent.executor import decode
from kgagent.executor.gates import judge
from kgagent.executor.judging import evidence_of
from kgagent.executor.receipts import Receipt, read_chain, run_folder
from kgagent.executor.records import Interval, Problem, VerifyReport
from kgagent.executor.rule import decide, promise_over_baseline
from kgagent.executor.snapshot import stored_lane
from kgagent.executor.stats import interval, median_ms, noise_floor_frac, sample_count
from kgagent.executor.verify_rows import row_problems, unknown_experiments
from kgagent.objects import Objects, canonical_json
from kgagent.workspace import Workspace

SAME = 1e-9  # library versions may round the last digit differently


def verify(workspace: Workspace, target: str | None = None) -> VerifyReport:
    """Check one run (an experiment id, a run's folder, a file of it), or everything there is."""
    folders = _folders(workspace, target) if target else sorted(path for path in workspace.runs.glob("*") if path.is_dir())
    problems: list[Problem] = []
    artefacts: set[str] = set()
    chains: list[tuple[Receipt, ...]] = []
    receipts = 0
    for folder in folders:
        try:
            chain = read_chain(folder)
        except StorageError as error:
            problems.append(Problem(error.where, error.what))
            continue
        chains.append(chain)
        receipts += len(chain)
        artefacts |= {sha for receipt in chain for sha in receipt.told.get("artefacts", {}).values()}
        problems += _run_problems(workspace, folder, chain)
    try:
        for chain in chains:
            problems += row_problems(workspace, chain, {receipt.step: receipt.told for receipt in chain})
        if target is None:
            problems += unknown_experiments(workspace)
    except StorageError as error:
        problems.append(Problem(error.where, f"{error.what}; the receipts were checked without it"))
    return VerifyReport(len(folders), receipts, len(artefacts), tuple(problems))


def _folders(workspace: Workspace, target: str) -> list[Path]:
    """Runs meant by an id, a run's folder or its name, a receipt's file, or an artefact's file (then all runs that hold it)."""
    everything = sorted(path for path in workspace.runs.glob("*") if path.is_dir())
    by_name = [run_folder(workspace, target)] if "/" in target else [workspace.runs / target]
    found = [folder for folder in by_name if folder in everything]
    path = Path(target).resolve()
    if not found and path.exists():
        home = path.parent if path.is_file() else path
        found = [folder for folder in everything if folder.resolve() == home]
        if path.is_relative_to(workspace.objects):
            found = [folder for folder in everything if f"{home.name}{path.name}" in _named(folder)]
    if found:
        return found
    known = ", ".join(folder.name for folder in everything[:5])
    raise UnknownThing(f"no run {target!r}", where=str(workspace.runs), hint=f"runs: {known}" if known else "kgagent run LANE makes one")


def _named(folder: Path) -> set[str]:
    """Hashes of the artefacts that a run's receipts name; none where the chain is damaged."""
    try:
        return {sha for receipt in read_chain(folder) for sha in receipt.told.get("artefacts", {}).values()}
    except StorageError:
        return set()


def _run_problems(workspace: Workspace, folder: Path, chain: tuple[Receipt, ...]) -> Iterator[Problem]:
    objects = Objects(workspace.objects)
    damaged = False
    for receipt in chain:
        told = receipt.told
        if canonical_json(told) != receipt.body:
            yield Problem(str(folder / receipt.file_name), "not canonical JSON")
        for role, sha in sorted(told.get("artefacts", {}).items()):
            try:
                objects.get(sha)
            except StorageError as error:
                damaged = True
                yield Problem(error.where, f"{role} of {told['experiment']}: {error.what}")
    steps = {receipt.step: receipt.told for receipt in chain}
    missing = {"plan", "trace", "check", "timing", "judge"} - steps.keys()
    if missing:
        yield Problem(str(folder), f"no receipt of {', '.join(sorted(missing))}")
        return
    last = str(folder / chain[-1].file_name)
    for what in (*_sums(steps), *_rule(steps)):
        yield Problem(last, what)
    if not damaged:
        for what in _gates(workspace, objects, steps):
            yield Problem(last, what)


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=SAME, abs_tol=SAME)


def _sums(steps: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Medians, interval and noise floor again, from the stored samples."""
    judged, timing, baseline = steps["judge"], steps["timing"], steps["plan"]["baseline"]
    pairs = [decode.pair(told) for told in timing["pairs"]]
    if timing["noise"]["pairs"] and not _close(noise_floor_frac([decode.pair(told) for told in timing["noise"]["pairs"]]), timing["noise"]["floor_frac"]):
        yield "the noise floor is not what its samples give"
    for leg, value in judged["measured"].items():
        if not _close(median_ms(pairs, leg), value):
            yield f"the {leg}'s time is not the median of its samples"
    if pairs and sample_count(pairs) != judged["samples"]:
        yield "the number of samples is not what was counted"
    compared = judged["comparison"]
    if compared is None:
        return
    again = interval(pairs)
    for name, value in (("speedup", again.speedup), ("ci_low", again.low), ("ci_high", again.high), ("pairs", again.pairs)):
        if not _close(value, compared[name]):
            yield f"{name} is not what the samples give: {compared[name]} filed, {value} computed"
    if compared["noise_floor_frac"] != timing["noise"]["floor_frac"]:
        yield "the comparison's noise floor is not the one measured"
    if not _close(compared["speedup_vs_reference"], compared["speedup"] * baseline["speedup_vs_reference"]):
        yield "the speedup against the reference is not the product of the steps to it"


def _rule(steps: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The rule applied again to what the last receipt holds."""
    judged, plan, timing = steps["judge"], steps["plan"], steps["timing"]
    if plan["role"] != "trial":
        return
    compared = judged["comparison"]
    seen = Interval(compared["speedup"], compared["ci_low"], compared["ci_high"], compared["pairs"]) if compared else None
    guards = {guard["metric"]: (guard["value"], guard["bound"]) for guard in judged["guards"]}
    gates = [decode.gate(gate) for gate in judged["gates"]]
    again = decide(judged["outcome"], judged["detail"], gates, guards, seen, timing["noise"]["floor_frac"], promise_over_baseline(plan))
    if again.verdict != judged["verdict"]:
        yield f"the rule gives {again.verdict}, filed is {judged['verdict']}"


def _gates(workspace: Workspace, objects: Objects, steps: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Gates that need no timing, judged again from the stored observations and programs."""
    if "observations" not in steps["check"]:
        return
    try:
        evidence = evidence_of(objects, stored_lane(workspace, steps["plan"]["lane"]["name"], steps["plan"]), steps["plan"], steps["check"])
    except KgError as error:
        yield f"the gates can't be judged again: {error.what}"
        return
    filed = {gate["name"]: gate["result"] for gate in steps["judge"]["gates"]}
    for gate in judge(evidence, "before"):
        if filed.get(gate.name) != gate.result:
            yield f"gate {gate.name} gives {gate.result}, filed is {filed.get(gate.name)}"
