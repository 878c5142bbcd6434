"""The program calls nothing but XLA: no host callback, no side effect, no custom call that isn't known to be pure.

The tracing process refuses these too, but it belongs to the candidate; this reads the program itself.
"""

from __future__ import annotations

import re

from kgagent.executor.gates.interface import Evidence, Gate, failed, passed
from kgagent.executor.records import GateResult
from kgagent.lanes import GateRule

NAME = "callbacks"
PURE = re.compile(
    r"Sharding|SPMDFullToShardShape|SPMDShardToFullShape|annotate_device_placement|LayoutConstraint|tpu_custom_call|mhlo\.\w+"
    r"|lapack_\w+|blas_\w+|ducc_fft|dynamic_ducc_fft|ApproxTopK|PartialReduce|Eigh|Qr|ProductOfElementaryHouseholderReflectors|LuDecomposition|shape_assertion"
)


def judge(evidence: Evidence, rule: GateRule) -> GateResult:
    """Name what isn't allowed."""
    del rule
    seen = evidence.observations
    unknown = sorted({name for name in seen.custom_calls if not PURE.fullmatch(name)})
    if unknown or seen.effects:
        told = ", ".join([*unknown, *seen.effects])
        return failed(NAME, f"the program calls out of XLA: {told}", custom_calls=list(seen.custom_calls), effects=list(seen.effects))
    return passed(NAME, "no callback, no effect, no unknown custom call", custom_calls=list(seen.custom_calls))


GATE = Gate(NAME, "before", judge)
