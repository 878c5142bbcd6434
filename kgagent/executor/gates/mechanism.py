"""The optimized HLO shows what the pulled levers say it should: expected patterns found, forbidden ones gone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kgagent.executor.gates.interface import Evidence, Gate, failed, not_applicable, passed
from kgagent.executor.hlo_text import fill
from kgagent.executor.records import GateResult
from kgagent.lanes import GateRule, Lane, matching_levers

NAME = "mechanism"


def judge(evidence: Evidence, rule: GateRule) -> GateResult:
    """Levers are those that lead from the parent's knobs to these; without a pattern the changed HLO must do."""
    del rule
    if evidence.parent_hlo is None:
        return not_applicable(NAME, "a reference has no parent")
    return levers_acted(evidence.lane, evidence.platform, evidence.knobs, evidence.parent_knobs, evidence.hlo)


def levers_acted(lane: Lane, platform: str, knobs: Mapping[str, Any], parent_knobs: Mapping[str, Any], hlo: str) -> GateResult:
    """Every pattern that the pulled levers declare for the platform, against optimized HLO."""
    timed = lane.points(platform, "timed")[0]
    checked: list[dict[str, Any]] = []
    for lever in matching_levers(lane, knobs, parent_knobs):
        values = {**timed.mapping(), **knobs, "value": knobs[lever.knob]}
        for expectation in (e for e in lever.hlo if e.platform == platform):
            for wanted, patterns in ((True, expectation.expect), (False, expectation.forbid)):
                for pattern in (fill(text, values) for text in patterns):
                    found = re.search(pattern, hlo)
                    checked.append({"lever": lever.slug(), "pattern": pattern, "wanted": wanted, "found": found is not None})
                    if (found is not None) != wanted:
                        told = "is missing" if wanted else f"is still there ({found[0][:80] if found else ''})"
                        return failed(NAME, f"lever {lever.slug()} did not act: {pattern} {told}", checked=checked)
    if not checked:
        return passed(NAME, "the HLO changed; the levers pulled declare no pattern for this platform", checked=[])
    return passed(NAME, f"{len(checked)} HLO patterns of the levers pulled hold", checked=checked)


GATE = Gate(NAME, "before", judge)
