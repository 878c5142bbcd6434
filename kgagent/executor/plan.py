"""The plan of one experiment: everything that is fixed before the candidate is touched, as the first receipt holds it."""

from __future__ import annotations

import re
from typing import Any

from kgagent.errors import Refused, Unavailable
from kgagent.executor.frontier import frontier
from kgagent.executor.journal import Journal, now
from kgagent.executor.machine import environment, version
from kgagent.executor.memory import configuration, cpu_scope, knob_text, lane_facts, read_hypothesis
from kgagent.graph import Graph, plain
from kgagent.lanes import Lane, candidate_code_sha
from kgagent.objects import sha256_hex

BACKEND = "cpu"
TIMED_PROGRAM = "export"  # artefact role of the timed operating point's program


def next_experiment(graph: Graph, journal: Journal, lane: str) -> str:
    """The next free id, counting the graph, the journal and raw/runs: a lost graph must not reuse a number."""
    known = [row[0] for row in graph.rows("SELECT id FROM node WHERE kind = 'experiment' AND id LIKE ?", f"exp:{lane}/%")]
    known += [*journal.runs(lane), *(f"exp:{lane}/{p.name.rsplit('-', 1)[1]}" for p in graph.workspace.runs.glob(f"{lane}-[0-9]*"))]
    numbers = [int(found[1]) for id_ in known if (found := re.fullmatch(rf"exp:{re.escape(lane)}/(\d+)", id_))]
    return f"exp:{lane}/{max(numbers, default=0) + 1:04d}"


def make_plan(graph: Graph, lane: Lane, experiment: str, hypothesis: str | None, rerun_of: str | None) -> dict[str, Any]:
    """Store the lane's files and fix subject, baseline and environment; `hypothesis=None` plans the reference."""
    if not version("jax"):  # a scope without it would be of no machine
        raise Unavailable("experiments need jax and flatbuffers", hint="pip install 'kgagent[jax]'")
    scope = cpu_scope(lane)
    if hypothesis is None:
        facts, chosen = None, configuration(lane, {}, code_sha=sha256_hex(lane.files["reference.py"]))
        baseline = None
    else:
        facts, chosen = read_hypothesis(graph, hypothesis)
        if facts.scope != scope.id:
            raise Refused(f"{hypothesis} is about {facts.scope}; this machine and these packages are {scope.id}", hint="propose it again here")
        if chosen.code_sha != candidate_code_sha(lane):
            raise Refused(f"the candidate's code changed since {hypothesis} was written", hint="propose it again with the code as it is")
        baseline = _baseline(graph, lane)
    files = {f"file:{name}": graph.objects.put(data) for name, data in sorted(lane.files.items())}
    return {
        "role": "reference" if hypothesis is None else "trial",
        "backend": BACKEND,
        "device": BACKEND,
        "lane": plain(lane_facts(lane)),
        "lane_folder": str(lane.folder),
        "scope": plain(scope),
        "scope_id": scope.id,
        "configuration": plain(chosen),
        "hypothesis": plain(facts),
        "baseline": baseline,
        "rerun_of": rerun_of,
        "branch": f"kg/{experiment.removeprefix('exp:')}",
        "budgets": plain(lane.budgets),
        "environment": environment(),
        "started_at": now(),
        "artefacts": files,
        "title": f"{experiment.removeprefix('exp:')}: {knob_text(chosen.knobs)}",
    }


def _baseline(graph: Graph, lane: Lane) -> dict[str, Any]:
    """The frontier now, with the programs to time and to compare against."""
    best = frontier(graph, lane)
    if best is None:
        raise Refused(f"lane {lane.name} has no reference here yet", hint="ensure_reference first")
    stored = dict(graph.rows("SELECT a.role, a.sha FROM artefact a JOIN node n ON n.key = a.experiment WHERE n.id = ?", best.experiment))
    return {
        "experiment": best.experiment,
        "profile": f"compile:{lane.name}/{BACKEND}/{best.configuration.rpartition('/')[2]}",
        "knobs": best.knobs,
        "speedup_vs_reference": best.speedup_vs_reference,
        "commit": best.commit_sha,
        "program": stored[TIMED_PROGRAM],
        "hlo": stored["hlo"],
    }
