"""The program differs from its parent's once names and source places are left out."""

from __future__ import annotations

from kgagent.executor.gates.interface import Evidence, Gate, failed, not_applicable, passed
from kgagent.executor.hlo_text import canonical
from kgagent.executor.records import GateResult
from kgagent.lanes import GateRule
from kgagent.objects import sha256_hex

NAME = "not_a_noop"


def judge(evidence: Evidence, rule: GateRule) -> GateResult:
    """Equal optimized HLO means that timing it would measure noise."""
    del rule
    if evidence.parent_hlo is None:
        return not_applicable(NAME, "a reference has no parent")
    mine, parent = sha256_hex(canonical(evidence.hlo)), sha256_hex(canonical(evidence.parent_hlo))
    if mine == parent:
        return failed(NAME, "the optimized HLO equals the baseline's: the change does nothing here", hlo=mine)
    return passed(NAME, "the optimized HLO differs from the baseline's", hlo=mine, parent_hlo=parent)


GATE = Gate(NAME, "before", judge)
