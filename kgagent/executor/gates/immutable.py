"""The files a candidate may not change are the same after the run as the lane was loaded with."""

from __future__ import annotations

from kgagent.executor.gates.interface import Evidence, Gate, failed, passed
from kgagent.executor.records import GateResult
from kgagent.lanes import GateRule
from kgagent.objects import sha256_hex

NAME = "immutable"


def judge(evidence: Evidence, rule: GateRule) -> GateResult:
    """Compare hashes; a file that went missing counts as changed."""
    del rule
    loaded = {name: sha256_hex(evidence.lane.files[name]) for name in evidence.lane.immutable}
    changed = sorted(name for name, sha in loaded.items() if evidence.files_now.get(name) != sha)
    if changed:
        return failed(NAME, f"{', '.join(changed)} changed during the run", loaded=loaded, now=dict(evidence.files_now))
    return passed(NAME, f"{len(loaded)} files unchanged", loaded=loaded)


GATE = Gate(NAME, "after", judge)
