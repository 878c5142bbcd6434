"""What the gates rest on: a program run on hidden seeds at every operating point, beside the float64 oracle.

It judges nothing; observations are stored, so that a gate can be applied to them again.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from kgagent.executor.programs import all_finite, compile_program, describe, differences, double_precision, fingerprint, load_module, read_program
from kgagent.executor.records import CoverageObservation, Observations, PointObservation
from kgagent.graph.records import plain

CUSTOM_CALL = re.compile(r"(?:stablehlo|mhlo)\.custom_call @\"?([\w.$]+)")
SMALLEST_FLOOR = 1e-30  # an exact reference still leaves a candidate no room at all otherwise


def observe(job: dict[str, Any], out: Path) -> None:
    """Write observations.json and program.hlo (optimized, of the timed operating point)."""
    import jax

    folder = Path(job["lane"])
    make_inputs, lane_inputs = load_module(folder, "inputs").inputs, load_module(folder, "inputs")
    reference = jax.jit(load_module(folder, "reference").reference)
    points: list[PointObservation] = []
    coverage: list[CoverageObservation] = []
    custom_calls: set[str] = set()
    effects: set[str] = set()
    timed: dict[str, Any] = {}
    for index, point in enumerate(job["points"]):
        exported = read_program(point["program"])
        custom_calls |= set(CUSTOM_CALL.findall(exported.mlir_module()))
        effects |= {str(effect) for effect in (*exported.ordered_effects, *exported.unordered_effects)}
        inputs = make_inputs(point["seeds"][0], point["fields"])
        expected_in, expected_out = describe(list(inputs)), describe(jax.eval_shape(reference, *inputs))
        got_in, got_out = _signature(exported)
        if (got_in, got_out) != (expected_in, expected_out) or effects:
            points.append(_unrun(point, got_in, expected_in, got_out, expected_out))
            continue
        started = time.perf_counter()
        compiled = compile_program(exported, inputs)
        if index == 0:
            timed = {"compile_s": time.perf_counter() - started, "memory": compiled.memory_analysis(), "hlo": compiled.as_text()}
        for seed in point["seeds"]:
            points.append(_run(point, seed, make_inputs, reference, compiled, expected_in, expected_out))
        if point["role"] == "parity" or len(job["points"]) == 1:
            coverage += _coverage(point, make_inputs, reference, compiled)
    memory = timed.get("memory")
    told = Observations(
        points=tuple(points),
        coverage=tuple(coverage),
        custom_calls=tuple(sorted(custom_calls)),
        effects=tuple(sorted(effects)),
        compile_s=timed.get("compile_s", 0.0),
        temp_bytes=int(getattr(memory, "temp_size_in_bytes", 0)),
        argument_bytes=int(getattr(memory, "argument_size_in_bytes", 0)),
        output_bytes=int(getattr(memory, "output_size_in_bytes", 0)),
        min_flops=float(lane_inputs.min_flops(job["points"][0]["fields"])) if hasattr(lane_inputs, "min_flops") else 0.0,
        jax=jax.__version__,
    )
    (out / "program.hlo").write_text(timed.get("hlo", ""))
    (out / "observations.json").write_text(json.dumps(plain(told), sort_keys=True))


def _signature(exported: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    import jax

    args, kwargs = jax.tree_util.tree_unflatten(exported.in_tree, exported.in_avals)
    inputs = [*args, kwargs] if kwargs else list(args)
    return describe(inputs), describe(jax.tree_util.tree_unflatten(exported.out_tree, exported.out_avals))


def _unrun(point: dict[str, Any], got_in: tuple[str, ...], expected_in: tuple[str, ...], got: tuple[str, ...], expected: tuple[str, ...]) -> PointObservation:
    """A program of another signature, or with effects, isn't run: there is nothing to compare."""
    return PointObservation(point["name"], point["seeds"][0], got_in, expected_in, got, expected, True, True, 0.0, 0.0, 0.0, 0.0, "", "", ())


def _run(point: dict[str, Any], seed: int, make_inputs: Any, reference: Any, compiled: Any, expected_in: Any, expected_out: Any) -> PointObservation:
    inputs = make_inputs(seed, point["fields"])
    before = fingerprint(inputs)
    first = compiled(*inputs)
    second = compiled(*inputs)
    hashes = (fingerprint(first), fingerprint(second))
    after = fingerprint(inputs)
    fresh = make_inputs(seed, point["fields"])  # the oracle never sees arrays that a program held
    own = reference(*fresh)
    with double_precision():
        oracle = reference(*(x.astype("float64") if "float" in str(x.dtype) else x for x in fresh))
        floor_max, floor_mean = differences(own, oracle)
        error_max, error_mean = differences(first, oracle)
        oracle_finite = all_finite(oracle)
    return PointObservation(
        op_point=point["name"],
        seed=seed,
        inputs=expected_in,
        expected_inputs=expected_in,
        outputs=describe(first),
        expected_outputs=expected_out,
        finite=all_finite(first),
        oracle_finite=oracle_finite,
        error_max=error_max,
        error_mean=error_mean,
        floor_max=max(floor_max, SMALLEST_FLOOR),
        floor_mean=max(floor_mean, SMALLEST_FLOOR),
        inputs_before=before,
        inputs_after=after,
        output_hashes=hashes,
    )


def _coverage(point: dict[str, Any], make_inputs: Any, reference: Any, compiled: Any) -> list[CoverageObservation]:
    """Redraw one input at a time."""
    inputs = make_inputs(point["seeds"][0], point["fields"])
    others = make_inputs(point["seeds"][0] ^ 0x5EED, point["fields"])
    candidate_was, reference_was = fingerprint(compiled(*inputs)), fingerprint(reference(*inputs))
    seen = []
    for argument in range(len(inputs)):
        redrawn = tuple(others[i] if i == argument else x for i, x in enumerate(inputs))
        changed = (fingerprint(reference(*redrawn)) != reference_was, fingerprint(compiled(*redrawn)) != candidate_was)
        seen.append(CoverageObservation(point["name"], argument, *changed))
    return seen
