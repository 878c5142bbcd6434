"""What to try next: open hypotheses near the subject and knob values nobody has tried, by their edges in the lane."""

from __future__ import annotations

import json
from collections import defaultdict

from kgagent.ask.context import Context
from kgagent.ask.records import Finding
from kgagent.ask.resolve import ANY, lever_of
from kgagent.ask.trail import steps
from kgagent.ask.wording import counted, plain_value, times
from kgagent.graph import Edge, Node

SHOWN_HYPOTHESES = 3
SHOWN_VALUES = 12


def hypotheses(context: Context) -> list[Finding]:
    """Open hypotheses of the lane that pull the subject's levers or test its concepts, largest expected gain first."""
    lane, subject = context.here.lane, context.subject
    if lane is None:
        return []
    near: dict[int, list[Edge]] = defaultdict(list)
    for step in steps(context.graph, [lever.node.key for lever in subject.levers], ("uses",), back=True, kind="hypothesis"):
        near[step.node.key].append(step.edge)
    for step in steps(context.graph, [link.node.key for link in subject.concepts], ("tests_concept",), back=True, kind="hypothesis"):
        near[step.node.key].append(step.edge)
    within = {step.edge.src: step.edge for step in steps(context.graph, near, ("within",), kind="lane") if step.node.key == lane.key}
    rows = context.graph.rows(
        """SELECT n.key, n.id, h.statement, h.expected_gain, h.falsification FROM hypothesis h JOIN node n ON n.key = h.key
           WHERE h.status = 'open' AND h.key IN (SELECT value FROM json_each(?)) ORDER BY h.expected_gain IS NULL, h.expected_gain DESC, h.key""",
        json.dumps(list(near)),
    )
    found: list[Finding] = []
    for key, id_, statement, gain, falsification in [row for row in rows if row[1] in within][:SHOWN_HYPOTHESES]:
        expected = f", promised {times(gain)} the reference" if gain is not None else ""
        text = f"try {id_} (open{expected}): {statement.strip().rstrip('.')}. It falls if: {falsification.strip().rstrip('.')}."
        ground = context.ground().rest(within[id_], *near[key])
        found.extend(ground.finding("next", text, "open"))
    return found


def untried(context: Context) -> list[Finding]:
    """Values of the lane's knobs that no experiment has used."""
    lane = context.here.lane
    if lane is None:
        return []
    used: set[tuple[str, str]] = set()
    for (text,) in context.graph.rows(
        "SELECT DISTINCT c.knobs FROM experiment e JOIN configuration c ON c.key = e.configuration WHERE e.lane = ? AND e.quarantined IS NULL", lane.key
    ):
        used |= {(knob, plain_value(value)) for knob, value in json.loads(text).items()}
    values: dict[str, list[str]] = defaultdict(list)
    edges: list[Edge] = []
    for step in steps(context.graph, [lane.key], ("within",), back=True, kind="lever"):
        setting = lever_of(step.node)
        if setting is None:
            continue
        _, knob, value = setting
        left_over = [choice for choice in (_choices(lane, knob) if value == ANY else [value]) if (knob, choice) not in used]
        if left_over:
            values[knob].extend(choice for choice in left_over if choice not in values[knob])
            edges.append(step.edge)
    if not edges:
        return []
    shown, left = [], SHOWN_VALUES
    own = {lever.knob for lever in context.subject.levers}
    for knob in sorted(values, key=lambda name: (name not in own, name)):
        if left > 0:
            shown.append(f"{knob}={'|'.join(values[knob][:left])}")
            left -= len(values[knob])
    rest = f" and {counted(-left, 'more value')}" if left < 0 else ""
    text = f"not tried in lane {lane.name} yet: {', '.join(shown)}{rest}; kgagent plan {lane.name} ranks them."
    return context.ground().about(lane).rest(*edges).finding("next", text, "open")


def _choices(lane: Node, knob: str) -> list[str]:
    """The values a knob may take, as its lane says."""
    knobs = lane.data.get("knobs")
    choices = knobs.get(knob, {}).get("choices", []) if isinstance(knobs, dict) else []
    return [plain_value(choice) for choice in choices]
