"""The page of a lane: how it is judged, its frontier, what is open, everything that was tried."""

from __future__ import annotations

import json

from kgagent.graph import Node
from kgagent.wiki.facts import Facts, more, page, times
from kgagent.wiki.properties import Properties
from kgagent.wiki.research_pages import knobs_text, research_name
from kgagent.wiki.text import code, prose, table
from kgagent.wiki.vault import Draft

SHOWN = 200


def lane(facts: Facts, node: Node) -> Draft:
    """Metric and gates first, then frontier, open hypotheses, experiments, compiles."""
    rows = facts.rows("SELECT kind, metric, unit, direction FROM lane WHERE key = ?", node.key)
    own: Properties = {"id": node.id, "kind": "lane", "title": node.name}
    judged = ""
    if rows:
        kind, metric, unit, direction = rows[0]
        own["metric"] = f"{metric} ({unit}), {direction}"
        judged = f"A {prose(kind)} lane, judged by {code(metric)} in {prose(unit)}; {'smaller' if direction == 'min' else 'larger'} is better."
    gates = facts.rows("SELECT gate, mandatory FROM lane_gate WHERE lane = ? ORDER BY gate", node.key)
    said = ", ".join(code(gate) + ("" if mandatory else " (optional)") for gate, mandatory in gates)
    parts = [f"# {prose(node.name)}", prose(node.doc), judged, f"Gates: {said}." if said else ""]
    parts += [_frontier(facts, node), _hypotheses(facts, node), _experiments(facts, node), _compiles(facts, node)]
    return Draft(node.id, "lanes", research_name(node), own, {"tags": ["lane"], "aliases": [node.name]}, page(*parts))


def _frontier(facts: Facts, node: Node) -> str:
    rows = facts.rows(
        """SELECT sn.id, s.chip, s.topology, en.id, f.speedup_vs_reference, c.knobs FROM frontier f JOIN scope s ON s.key = f.scope
           JOIN node sn ON sn.key = f.scope JOIN node en ON en.key = f.experiment JOIN configuration c ON c.key = f.configuration
           WHERE f.lane = ? ORDER BY sn.id""",
        node.key,
    )
    lines = []
    for scope, chip, topology, id_, speedup, knobs in rows:
        on = chip if topology == chip else f"{chip} {topology}"
        lines.append([code(scope), prose(on), facts.link(id_), times(speedup), knobs_text(knobs)])
    text = table(["scope", "on", "experiment", "over the reference", "configuration"], lines)
    return f"## Frontier\n\n{text or 'No experiment has passed its gates yet.'}"


def _hypotheses(facts: Facts, node: Node) -> str:
    rows = facts.rows(
        """SELECT n.id, h.statement, h.expected_gain, h.cost_minutes FROM hypothesis h JOIN node n ON n.key = h.key
           WHERE h.lane = ? AND h.status = 'open' ORDER BY h.expected_gain IS NULL, h.expected_gain DESC, n.id""",
        node.key,
    )
    lines = []
    for id_, statement, gain, cost in rows[:SHOWN]:
        lines.append([facts.link(id_), prose(statement), times(gain) if gain is not None else "", f"{cost:.3g} min" if cost is not None else ""])
    text = table(["hypothesis", "statement", "expected gain", "cost"], lines)
    return f"## Open hypotheses\n\n{text}\n{more(len(rows), SHOWN, code(f'kgagent plan {node.name}'))}" if text else ""


def _experiments(facts: Facts, node: Node) -> str:
    rows = facts.rows(
        """SELECT n.id, coalesce(v.verdict, e.outcome), (SELECT max(c.speedup_vs_reference) FROM comparison c WHERE c.experiment = e.key),
                  c.knobs, s.chip
           FROM experiment e JOIN node n ON n.key = e.key JOIN configuration c ON c.key = e.configuration JOIN scope s ON s.key = e.scope
           LEFT JOIN verdict v ON v.experiment = e.key WHERE e.lane = ? ORDER BY e.key DESC""",
        node.key,
    )
    lines = []
    for id_, verdict, speedup, knobs, chip in rows[:SHOWN]:
        lines.append([facts.link(id_), prose(verdict), times(speedup) if speedup is not None else "", prose(chip), knobs_text(knobs)])
    text = table(["experiment", "verdict", "over the reference", "on", "configuration"], lines)
    return f"## Experiments\n\n{text}\n{more(len(rows), SHOWN, 'frontier.base lists all')}" if text else ""


def _compiles(facts: Facts, node: Node) -> str:
    rows = facts.rows(
        "SELECT p.id, p.name, p.data FROM edge e JOIN node p ON p.key = e.src WHERE e.dst = ? AND e.type = 'within' AND p.kind = 'profile' ORDER BY p.id",
        node.key,
    )
    lines = []
    for id_, name, data in rows[:SHOWN]:
        values = json.loads(data) if data else {}
        label = " ".join(str(values[key]) for key in ("label", "topology", "status") if values.get(key))
        lines.append(f"- {facts.link(id_, name)} ({prose(label)})")
    return "## Compiles\n\n" + "\n".join(lines) + more(len(rows), SHOWN, "the folder profiles lists all") if lines else ""
