"""Pages of the research memory: hypotheses and experiments."""

from __future__ import annotations

import json
from typing import Any

from kgagent.graph import Node
from kgagent.wiki.facts import Facts, page, times
from kgagent.wiki.properties import Properties
from kgagent.wiki.text import block, code, prose, slug, table
from kgagent.wiki.vault import Draft


def knobs_text(text: str | None) -> str:
    """`block_q=256, impl=splash` as code, 'reference' without knobs."""
    values: dict[str, Any] = json.loads(text) if text else {}
    if not values:
        return "reference"
    return code(", ".join(f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in sorted(values.items())))


def research_name(node: Node) -> str:
    """`exp-attention-0001`, `hyp-attention-1a2b3c4d`, `lane-attention`."""
    return slug(node.id)


def hypothesis(facts: Facts, node: Node) -> Draft:
    """What would be changed, why it should help, what would show that it doesn't, and the experiments on it."""
    row = facts.rows(
        """SELECT h.statement, h.mechanism, h.predicted_signal, h.falsification, h.origin, h.expected_gain, h.cost_minutes, h.prior,
                  h.whats_new, h.status, h.lever, l.id, s.id, c.knobs
           FROM hypothesis h JOIN node l ON l.key = h.lane JOIN node s ON s.key = h.scope JOIN configuration c ON c.key = h.configuration
           WHERE h.key = ?""",
        node.key,
    )
    own: Properties = {"id": node.id, "kind": "hypothesis", "title": node.name}
    parts = [f"# {prose(node.name)}"]
    if row:
        statement, mechanism, signal, falsification, origin, gain, cost, prior, news, status, lever, lane_id, scope, knobs = row[0]
        own |= {"lane": lane_id.removeprefix("lane:"), "status": status}
        for name, value in (("expected_gain", gain), ("cost_minutes", cost), ("prior", prior)):
            if value is not None:
                own[name] = round(float(value), 4)
        concepts = facts.rows(
            "SELECT c.id, c.name FROM edge e JOIN node c ON c.key = e.dst WHERE e.src = ? AND e.type = 'tests_concept' ORDER BY c.id", node.key
        )
        rows = [
            ["lane", facts.link(lane_id)], ["scope", code(scope)], ["configuration", knobs_text(knobs)], ["lever", code(lever)], ["status", prose(status)],
            ["origin", prose(origin)], ["mechanism", prose(mechanism)], ["should show", prose(signal)], ["falls if", prose(falsification)],
        ]  # fmt: skip
        rows += [["what is new", prose(news)]] if news.strip() else []
        rows += [["concepts", ", ".join(facts.link(id_, name) for id_, name in concepts)]] if concepts else []
        parts += [prose(statement), table(["", ""], rows), _experiments_of(facts, node)]
    return Draft(node.id, "hypotheses", research_name(node), own, {"tags": ["hypothesis"], "aliases": [node.name]}, page(*parts))


def _experiments_of(facts: Facts, node: Node) -> str:
    rows = facts.rows(
        """SELECT n.id, coalesce(v.verdict, e.outcome), coalesce(v.reason, e.detail) FROM experiment e JOIN node n ON n.key = e.key
           LEFT JOIN verdict v ON v.experiment = e.key WHERE e.hypothesis = ? ORDER BY e.key""",
        node.key,
    )
    ruled = facts.rows("SELECT n.id FROM ruling r JOIN node n ON n.key = r.experiment WHERE r.hypothesis = ? ORDER BY n.id", node.key)
    text = table(["experiment", "verdict", "reason"], [[facts.link(id_), verdict, prose(reason)] for id_, verdict, reason in rows])
    held = "A refutation is held against it: " + ", ".join(facts.link(id_) for (id_,) in ruled) + "." if ruled else ""
    return "\n\n".join(part for part in (f"## Experiments\n\n{text}" if text else "", held) if part)


def experiment(facts: Facts, node: Node) -> Draft:
    """What ran, against what, what was measured, which gates passed, the verdict and its receipts."""
    row = facts.rows(
        """SELECT l.id, s.id, sc.chip, sc.topology, sc.jax, c.knobs, h.id, h.name, e.role, b.id, e.backend, e.branch, e.commit_sha,
                  e.started_at, e.outcome, e.detail, e.quarantined, v.verdict, v.kind, v.reason
           FROM experiment e JOIN node l ON l.key = e.lane JOIN node s ON s.key = e.scope JOIN scope sc ON sc.key = e.scope
           JOIN configuration c ON c.key = e.configuration LEFT JOIN node h ON h.key = e.hypothesis LEFT JOIN node b ON b.key = e.baseline
           LEFT JOIN verdict v ON v.experiment = e.key WHERE e.key = ?""",
        node.key,
    )
    own: Properties = {"id": node.id, "kind": "experiment", "title": node.name}
    parts = [f"# {prose(node.name)}"]
    if row:
        lane_id, scope, chip, topology, jax, knobs, hyp, hyp_name, role, base, backend, branch, commit = row[0][:13]
        started, outcome, detail, quarantined, verdict, kind, reason = row[0][13:]
        own |= {"lane": lane_id.removeprefix("lane:"), "outcome": outcome, "chip": chip, "jax": jax}
        if verdict:
            own["verdict"] = verdict
        rows = [["lane", facts.link(lane_id)], ["scope", f"{code(scope)} ({prose(chip if topology == chip else f'{chip} {topology}')}, jax {prose(jax)})"]]
        rows += [["hypothesis", facts.link(hyp, hyp_name)]] if hyp else []
        rows += [["configuration", knobs_text(knobs)], ["role", prose(role)], ["backend", prose(backend)], ["outcome", prose(outcome.replace("_", " "))]]
        rows += [["baseline", facts.link(base)]] if base else []
        rows += [["commit", code(f"{branch} {commit[:12]}".strip())]] if commit else []
        rows += [["started", prose(started)]]
        said = f"**{verdict}** ({kind}): {prose(reason)}" if verdict else "No verdict."
        parts += [
            said,
            f"Quarantined: {prose(quarantined)}" if quarantined else "",
            table(["", ""], rows),
            _times(facts, node, own),
            _gates(facts, node),
            _produced(facts, node),
        ]
        parts += ["## Detail\n\n" + block(detail)] if detail.strip() else []
        receipts = facts.rows("SELECT seq, step, sha FROM receipt WHERE experiment = ? ORDER BY seq", node.key)
        parts.append("## Receipts\n\n" + "\n".join(f"{seq + 1}. {prose(step)} {code(sha)}" for seq, step, sha in receipts) if receipts else "")
    if node.key in facts.frontier:
        own["frontier"] = "yes"
    return Draft(node.id, "experiments", research_name(node), own, {"tags": ["experiment"], "aliases": [node.name]}, page(*parts))


def _times(facts: Facts, node: Node, own: Properties) -> str:
    rows = facts.rows(
        """SELECT m.op_point, m.metric, m.value, b.value, m.unit, m.statistic, m.timer, m.device, c.speedup, c.ci_low, c.ci_high,
                  c.noise_floor_frac, c.pairs, c.speedup_vs_reference
           FROM comparison c JOIN measurement m ON m.key = c.candidate JOIN measurement b ON b.key = c.baseline
           WHERE c.experiment = ? ORDER BY c.speedup_vs_reference DESC, c.key""",
        node.key,
    )
    if not rows:
        return ""
    _, _, _, _, _, _, _, device, speedup, low, high, floor, pairs, over = rows[0]
    own |= {"speedup": round(speedup, 4), "speedup_low": round(low, 4), "speedup_high": round(high, 4), "over_reference": round(over, 4)}
    own |= {"noise_floor_pct": round(floor * 100, 3), "pairs": pairs, "device": device}
    lines = []
    for point, metric, mine, theirs, unit, statistic, timer, on, ratio, lower, upper, floor_frac, count, over_ref in rows:
        how = f"{prose(metric)}, {prose(statistic)} by {prose(timer)}"
        values = [f"{mine:.6g} {prose(unit)}", f"{theirs:.6g} {prose(unit)}", f"{times(ratio)} ({times(lower)} to {times(upper)})"]
        lines.append([code(point), how, *values, f"{floor_frac * 100:.2g}%", str(count), times(over_ref), prose(on)])
    head = ["point", "metric", "candidate", "baseline", "speedup (interval)", "noise floor", "pairs", "over the reference", "device"]
    return f"## Times\n\n{table(head, lines)}"


def _gates(facts: Facts, node: Node) -> str:
    rows = facts.rows("SELECT name, result, detail FROM gate WHERE experiment = ? ORDER BY result = 'pass', name", node.key)
    text = table(["gate", "result", "detail"], [[code(name), prose(result.replace("_", " ")), prose(detail)] for name, result, detail in rows])
    return f"## Gates\n\n{text}" if text else ""


def _produced(facts: Facts, node: Node) -> str:
    rows = facts.rows(
        "SELECT p.id, p.name FROM edge e JOIN node p ON p.key = e.dst WHERE e.src = ? AND e.type = 'produced' AND p.kind = 'profile' ORDER BY p.id", node.key
    )
    return "Compiled as " + ", ".join(facts.link(id_, name) for id_, name in rows) + "." if rows else ""
