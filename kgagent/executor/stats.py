"""Speedups from paired samples: medians of paired ratios, and an interval clustered by process pair.

Samples of one process share its memory layout and its moment; pooling them as if independent gives false verdicts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import fmean, median, stdev

from kgagent.executor.records import Interval, Pair

RESAMPLES = 2000
SEED = 20  # fixed: verify must find the same interval again
TAIL = 0.025
SMALLEST_FLOOR_FRAC = 0.01
FLOOR_MARGIN = 2.0  # few A/A pairs show only part of the spread
# Two-sided 95% quantiles of Student's t for 1, 2, 3 … degrees of freedom.
T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086)
T_LIMIT = 1.96


def pair_ratio(pair: Pair) -> float:
    """The median ratio of one process pair."""
    return median(quad.ratio for quad in pair.quads)


def interval(pairs: Sequence[Pair]) -> Interval:
    """Median over pairs, with the wider of a two-level bootstrap and Student's t over the pairs' log ratios.

    A bootstrap alone covers far less than it says when there are only a few clusters.
    """
    centre = median(pair_ratio(pair) for pair in pairs)
    low, high = _bootstrap(pairs)
    if len(pairs) > 1:
        logs = [math.log(pair_ratio(pair)) for pair in pairs]
        degrees = len(pairs) - 1
        half = (T_QUANTILES[degrees - 1] if degrees <= len(T_QUANTILES) else T_LIMIT) * stdev(logs) / math.sqrt(len(logs))
        low, high = min(low, math.exp(fmean(logs) - half)), max(high, math.exp(fmean(logs) + half))
    return Interval(centre, min(low, centre), max(high, centre), len(pairs))


def _bootstrap(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Resample pairs, then quads within each; percentiles of the median of medians."""
    chance = random.Random(SEED)
    ratios = [[quad.ratio for quad in pair.quads] for pair in pairs]
    found = sorted(median(median(chance.choices(quads, k=len(quads))) for quads in chance.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return found[int(TAIL * RESAMPLES)], found[int((1 - TAIL) * RESAMPLES) - 1]


def noise_floor_frac(pairs: Sequence[Pair]) -> float:
    """The smallest effect worth believing, from pairs that timed a program against itself."""
    worst = max(abs(math.log(pair_ratio(pair))) for pair in pairs)
    return max(SMALLEST_FLOOR_FRAC, math.expm1(FLOOR_MARGIN * worst))


def median_ms(pairs: Sequence[Pair], leg: str) -> float:
    """The median time per call of one leg over all samples."""
    return median(ns for pair in pairs for quad in pair.quads for ns in (quad.candidate_ns if leg == "candidate" else quad.baseline_ns)) / 1e6


def sample_count(pairs: Sequence[Pair]) -> int:
    """Timed samples of each leg."""
    return 2 * sum(len(pair.quads) for pair in pairs)
