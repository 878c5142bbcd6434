"""One timed pair: two programs in one fresh process, interleaved in both orders, each sample blocked on its result.

Only ratios within a pair are believed, so that a slow moment of the machine meets both programs.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from kgagent.executor.programs import compile_program, differences, load_module, read_program
from kgagent.executor.records import Pair, Quad
from kgagent.graph.records import plain

WARM_UPS = 2
SAMPLE_NS = 5_000_000  # shorter work is batched up to this: the clock's own cost must not show
LARGEST_BATCH = 1000


def time_pair(job: dict[str, Any], out: Path) -> None:
    """Write pair.json; `first` says which program compiles, warms up and starts first."""
    import jax

    inputs = load_module(Path(job["lane"]), "inputs").inputs(job["seed"], job["fields"])
    order = ("candidate", "baseline") if job["first"] == "candidate" else ("baseline", "candidate")
    programs = {leg: compile_program(read_program(job[leg]), inputs) for leg in order}
    for leg in order:
        for _ in range(WARM_UPS):
            jax.block_until_ready(programs[leg](*inputs))
    quickest_ns = min(_sample(programs[leg], inputs, 1) for leg in order)
    batch = max(1, min(LARGEST_BATCH, round(SAMPLE_NS / quickest_ns)))
    quads = []
    for index in range(job["samples"]):
        outer, inner = order if index % 2 == 0 else order[::-1]
        times: dict[str, list[float]] = {"candidate": [], "baseline": []}
        for leg in (outer, inner, inner, outer):
            times[leg].append(_sample(programs[leg], inputs, batch))
        quads.append(Quad((times["candidate"][0], times["candidate"][1]), (times["baseline"][0], times["baseline"][1])))
    apart, _ = differences(programs["candidate"](*inputs), programs["baseline"](*inputs))
    told = Pair(job["first"], job["seed"], batch, tuple(quads), apart, os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0)
    (out / "pair.json").write_text(json.dumps(plain(told), sort_keys=True))


def _sample(program: Any, inputs: tuple[Any, ...], batch: int) -> float:
    """Nanoseconds per call."""
    import jax

    started = time.perf_counter_ns()
    for _ in range(batch):
        result = program(*inputs)
        jax.block_until_ready(result)
    return (time.perf_counter_ns() - started) / batch
