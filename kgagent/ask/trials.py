"""Experiments of a subject in the current lane, with what they measured and on what.

An experiment counts here only by its edges: within the lane, at a scope, using a configuration the subject is in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kgagent.ask.compiled import TEMP_NAMES, memory
from kgagent.ask.resolve import ANY, Lever
from kgagent.ask.trail import Step, steps
from kgagent.ask.wording import plain_value, size
from kgagent.graph import Edge, Graph, Node
from kgagent.graph.store import NODE_COLUMNS, node_of

READ = 80
_TPU_CHIP = re.compile(r"(?:tpu ?)?v\d|tpu", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Paired:
    """One comparison of an experiment: candidate against its baseline, at an operating point."""

    op_point: str
    metric: str
    speedup: float
    ci_low: float
    ci_high: float
    noise_floor_frac: float
    pairs: int
    over_reference: float

    @property
    def decided(self) -> str:
        """faster, slower, or level: whether the interval and the noise floor leave a doubt."""
        if self.ci_low > 1 and self.speedup > 1 + self.noise_floor_frac:
            return "faster"
        if self.ci_high < 1 and self.speedup < 1 - self.noise_floor_frac:
            return "slower"
        return "level"


@dataclass(frozen=True, slots=True)
class Trial:
    """An experiment as evidence; `edges` are those that make it count."""

    node: Node
    scope: Node
    device: str
    chip: str
    topology: str
    jax: str
    knobs: dict[str, Any]
    outcome: str
    detail: str
    verdict: str  # '' when no verdict is linked
    reason: str
    reference: bool  # whether it is the lane's reference rather than a trial
    alone: str  # what was measured of it, where nothing was compared
    paired: tuple[Paired, ...]
    baseline: Node | None
    baseline_knobs: dict[str, Any]
    quarantined: str
    interpreted: tuple[Edge, ...]  # to compiles that say Pallas was interpreted
    memory: str  # temporary memory against the baseline's, '' where either compile doesn't say
    memory_edges: tuple[Edge, ...]
    edges: tuple[Edge, ...]

    @property
    def timed(self) -> bool:
        return bool(self.device)

    @property
    def on_tpu(self) -> bool:
        """Timed, and on a TPU."""
        return self.timed and is_tpu(self.device, self.chip)

    @property
    def sound(self) -> bool:
        """Whether its numbers may be used: nothing failed, nobody set it aside."""
        return self.outcome == "completed" and self.verdict != "invalid" and not self.quarantined


def is_tpu(device: str, chip: str) -> bool:
    """Whether a device or chip name is a TPU's (`TPU v6 lite`, `v6e`)."""
    return bool(_TPU_CHIP.match(device) or _TPU_CHIP.match(chip))


def matches(knobs: dict[str, Any], lever: Lever) -> bool:
    """Whether a configuration pulls a lever; values compare as they are typed."""
    return lever.knob in knobs and lever.value in (ANY, plain_value(knobs[lever.knob]))


def configurations(graph: Graph, lane: Node | None, levers: Iterable[Lever]) -> list[int]:
    """Configurations of the lane that pull any of these levers."""
    wanted = list(levers)
    if lane is None or not wanted:
        return []
    rows = graph.rows("SELECT key, knobs FROM configuration WHERE lane = ? ORDER BY key", lane.key)
    return [key for key, text in rows if any(matches(json.loads(text), lever) for lever in wanted if f'"{lever.knob}"' in text)]


def trials(graph: Graph, lane: Node | None, keys: Sequence[int]) -> list[Trial]:
    """Experiments of these configurations: timed on a TPU first, then sound ones, then the fastest."""
    if lane is None or not keys:
        return []
    chosen = _foremost(graph, lane, keys)
    wanted = set(keys)
    used = {step.edge.src: step.edge for step in steps(graph, chosen, ("uses",), kind="configuration") if step.node.key in wanted}
    uses = {key: Step(used[node.id], node) for key, node in chosen.items() if node.id in used}
    within = {step.edge.src: step.edge for step in steps(graph, uses, ("within",), kind="lane") if step.node.key == lane.key}
    at = {step.edge.src: step for step in steps(graph, uses, ("at",), kind="scope")}
    verdicts = {step.edge.src: step.edge for step in steps(graph, uses, ("produced",), kind="verdict")}
    profiles: dict[str, list[tuple[Edge, Node]]] = {}
    for step in steps(graph, uses, ("produced",), kind="profile"):
        profiles.setdefault(step.edge.src, []).append((step.edge, step.node))
    rows = graph.rows(
        """SELECT e.key, c.knobs, e.outcome, e.detail, e.baseline, coalesce(e.quarantined, ''), v.verdict, v.reason, s.chip, s.topology, s.jax,
                  (SELECT bc.knobs FROM experiment b JOIN configuration bc ON bc.key = b.configuration WHERE b.key = e.baseline),
                  coalesce((SELECT m.device FROM measurement m WHERE m.experiment = e.key ORDER BY m.leg = 'baseline', m.key LIMIT 1), ''),
                  e.role = 'reference', (SELECT printf('%.4g %s %s %s at %s', m.value, m.unit, m.statistic, m.metric, m.op_point) FROM measurement m
                                         WHERE m.experiment = e.key ORDER BY m.leg = 'baseline', m.key LIMIT 1)
           FROM experiment e JOIN configuration c ON c.key = e.configuration JOIN scope s ON s.key = e.scope LEFT JOIN verdict v ON v.experiment = e.key
           WHERE e.key IN (SELECT value FROM json_each(?)) ORDER BY e.key""",
        json.dumps(list(uses)),
    )
    paired = _paired(graph, list(uses))
    bases: dict[int, list[tuple[Edge, Node]]] = {}
    named = graph.rows("SELECT id, key FROM node WHERE key IN (SELECT value FROM json_each(?))", json.dumps([row[4] for row in rows]))
    base_keys = {str(id_): int(key) for id_, key in named}
    for step in steps(graph, base_keys.values(), ("produced",), kind="profile"):
        bases.setdefault(base_keys[step.edge.src], []).append((step.edge, step.node))
    found = []
    for key, knobs, outcome, detail, baseline, quarantined, verdict, reason, chip, topology, jax, baseline_knobs, device, role, alone in rows:
        node, edge = uses[key].node, uses[key].edge
        if node.id not in within or node.id not in at:
            continue
        linked = verdicts.get(node.id)
        produced = profiles.get(node.id, [])
        interpreted = [edge for edge, profile in produced if profile.data.get("interpret") or profile.data.get("interpreted")]
        found.append(
            Trial(
                node, at[node.id].node, device, chip, topology, jax, json.loads(knobs), outcome, detail,
                str(verdict or "") if linked else "", str(reason or "") if linked else "", bool(role), str(alone or ""), tuple(paired.get(key, ())),
                graph.node_by_key(baseline) if baseline is not None else None, json.loads(baseline_knobs) if baseline_knobs else {},
                quarantined, tuple(interpreted), *_memory(produced, bases.get(baseline, [])),
                (within[node.id], edge, at[node.id].edge, *([linked] if linked else [])),
            )
        )  # fmt: skip
    return sorted(
        found,
        key=lambda trial: (not trial.on_tpu, trial.reference, not trial.sound, not trial.paired, -max((p.over_reference for p in trial.paired), default=0.0)),
    )


def _foremost(graph: Graph, lane: Node, keys: Sequence[int]) -> dict[int, Node]:
    """The experiments worth reading of what may be thousands: on a TPU first, sound before set aside, fast before slow."""
    rows = graph.rows(
        f"""SELECT {NODE_COLUMNS} FROM experiment x JOIN node n ON n.key = x.key JOIN scope s ON s.key = x.scope
            WHERE x.lane = ? AND x.configuration IN (SELECT value FROM json_each(?))
            ORDER BY s.chip NOT LIKE 'v%' AND s.chip NOT LIKE 'tpu%', x.quarantined IS NOT NULL, x.outcome <> 'completed',
                     (SELECT max(c.speedup_vs_reference) FROM comparison c WHERE c.experiment = x.key) DESC, x.key LIMIT {READ}""",
        lane.key, json.dumps(list(keys)),
    )  # fmt: skip
    return {row[0]: node_of(row) for row in rows}


def counted_trials(graph: Graph, lane: Node | None, keys: Sequence[int]) -> int:
    """How many experiments there are, read or not."""
    sql = "SELECT count(*) FROM experiment WHERE lane = ? AND configuration IN (SELECT value FROM json_each(?))"
    return int(graph.value(sql, lane.key, json.dumps(list(keys)))) if lane is not None else 0


def _memory(mine: list[tuple[Edge, Node]], base: list[tuple[Edge, Node]]) -> tuple[str, tuple[Edge, ...]]:
    """How temporary memory changed from the baseline's compile to the candidate's, with the edges to both."""
    for edge, profile in mine:
        for base_edge, base_profile in base:
            before, after = memory(base_profile, TEMP_NAMES), memory(profile, TEMP_NAMES)
            if before is not None and after is not None and profile.data.get("topology") == base_profile.data.get("topology"):
                return f"temporary memory {size(before)} -> {size(after)}", (base_edge, edge)
    return "", ()


def _paired(graph: Graph, experiments: Sequence[int]) -> dict[int, list[Paired]]:
    """Comparisons by experiment, largest speedup over the reference first."""
    found: dict[int, list[Paired]] = {}
    rows = graph.rows(
        """SELECT c.experiment, m.op_point, m.metric, c.speedup, c.ci_low, c.ci_high, c.noise_floor_frac, c.pairs, c.speedup_vs_reference
           FROM comparison c JOIN measurement m ON m.key = c.candidate
           WHERE c.experiment IN (SELECT value FROM json_each(?)) ORDER BY c.speedup_vs_reference DESC, c.key""",
        json.dumps(list(experiments)),
    )
    for experiment, *values in rows:
        found.setdefault(experiment, []).append(Paired(*values))
    return found
