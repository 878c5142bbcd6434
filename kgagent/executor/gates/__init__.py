"""The gates, one module each, registered here; a lane declares which it asks for.

A new gate is a new module with a `GATE`, and a line in `GATES`.
"""

from __future__ import annotations

from kgagent.errors import ConfigError
from kgagent.executor.gates import (
    callbacks,
    coverage,
    determinism,
    finite,
    immutable,
    inputs_unchanged,
    mechanism,
    not_a_noop,
    parity,
    roofline,
    signature,
    timed_output,
)
from kgagent.executor.gates.interface import Evidence as Evidence
from kgagent.executor.gates.interface import Gate as Gate
from kgagent.executor.records import GateResult
from kgagent.lanes import Lane

# In the order in which a person wants to hear of failures.
GATES: dict[str, Gate] = {
    module.GATE.name: module.GATE
    for module in (
        immutable, callbacks, signature, finite, parity, inputs_unchanged, coverage, determinism, not_a_noop, mechanism, timed_output, roofline,
    )
}  # fmt: skip


GUARDED = ("compile_s", "temp_mb")  # what a guard may bound; judging.guards_of measures them


def check_rules(lane: Lane) -> None:
    """Refuse a lane that asks for a gate or guard nobody wrote: it could never be passed, or would silently not be looked at."""
    where = str(lane.folder / "lane.toml")
    for name, _ in lane.guards:
        if name not in GUARDED:
            raise ConfigError(f"lane {lane.name} guards {name!r}, which nothing measures", where=where, hint=f"guards: {', '.join(GUARDED)}")
    for rule in lane.gates:
        if rule.name not in GATES:
            raise ConfigError(f"lane {lane.name} asks for a gate {rule.name!r} that doesn't exist", where=where, hint=f"gates: {', '.join(GATES)}")


def judge(evidence: Evidence, stage: str) -> tuple[GateResult, ...]:
    """Results of the lane's gates that speak at a stage."""
    rules = {rule.name: rule for rule in evidence.lane.gates}
    return tuple(gate.judge(evidence, rules[name]) for name, gate in GATES.items() if name in rules and gate.stage == stage)
