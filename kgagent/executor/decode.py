"""JSON back into records; the inverse of `kgagent.graph.plain` for what workers and receipts hold."""

from __future__ import annotations

from typing import Any

from kgagent.executor.records import CoverageObservation, GateResult, Observations, Pair, PointObservation, Quad


def observations(told: dict[str, Any]) -> Observations:
    points = tuple(PointObservation(**_tuples(point)) for point in told["points"])
    coverage = tuple(CoverageObservation(**seen) for seen in told["coverage"])
    return Observations(**{**_tuples(told), "points": points, "coverage": coverage})


def _tuples(told: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists only; records that cross boundaries hold tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in told.items()}


def pair(told: dict[str, Any]) -> Pair:
    quads = tuple(
        Quad((float(q["candidate_ns"][0]), float(q["candidate_ns"][1])), (float(q["baseline_ns"][0]), float(q["baseline_ns"][1]))) for q in told["quads"]
    )
    return Pair(told["first"], told["seed"], told["batch"], quads, told["output_difference"], told["load_1min"])


def gate(told: dict[str, Any]) -> GateResult:
    return GateResult(told["name"], told["result"], told["detail"], told["evidence"])
