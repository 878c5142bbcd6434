"""Score = P(supported) x expected gain / cost, each moved by what neighbouring experiments showed.

P is a Beta prior from the lever, updated by neighbours weighted by proximity x scope x configuration. A neighbour is read
against today's frontier, not against the one it met: what beat the reference may be hopeless now, and the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kgagent.planner.records import Idea, Part, Ranked, Term, Tried

PRIOR_STRENGTH = 3.0  # the prior counts as this many experiments
RAMP = math.log(1.10)  # a neighbour this far from the frontier says yes (or no) for sure
LEAST_WEIGHT = 0.02
LEAST_GAIN_FRAC = 0.01
SATURATION = 0.85  # each further refuted try of a lever at this scope leaves this share of its probability


def proximity(idea: Idea, tried: Tried) -> float:
    """How much one hypothesis says about another, 0 to 1: lever, concepts, and how many knobs they share."""
    if idea.device_class != tried.device_class:
        return 0.0
    union = idea.concepts | tried.concepts
    shared = len(idea.concepts & tried.concepts) / len(union) if union else 0.0
    lever = 1.0 if idea.lever == tried.lever else 0.0
    near = 0.45 * lever + 0.25 * shared + 0.30 * configuration_similarity(idea.knobs, tried.knobs)
    return near * (1.0 if idea.scope == tried.scope else 0.4)


def configuration_similarity(a: Mapping[str, object], b: Mapping[str, object]) -> float:
    """Share of knobs set alike; numeric neighbours (128 and 256) count in part, by their distance in doublings."""
    names = set(a) | set(b)
    if not names:
        return 1.0
    return sum(_alike(a.get(name), b.get(name)) for name in names) / len(names)


def _alike(x: object, y: object) -> float:
    if x == y:
        return 1.0
    numbers = [v for v in (x, y) if isinstance(v, (int, float)) and not isinstance(v, bool) and v > 0]
    if len(numbers) == 2:
        return max(0.0, 0.6 - 0.2 * (abs(math.log2(numbers[0] / numbers[1])) - 1))
    return 0.0


def agreement(tried: Tried) -> float | None:
    """Whether the neighbour would beat today's frontier, 0 to 1; None where it says nothing (unsound, unmeasured)."""
    if tried.verdict == "invalid":
        return None
    if tried.ratio is not None:
        return min(1.0, max(0.0, 0.5 + math.log(tried.ratio) / (2 * RAMP)))
    return {"supported": 1.0, "refuted": 0.0}.get(tried.verdict)


def probability(idea: Idea, history: Sequence[Tried]) -> Part:
    """P(supported) with the neighbours it came from, heaviest first."""
    terms = [Term("prior of the lever", idea.prior, PRIOR_STRENGTH, idea.lever)]
    for tried in history:
        weight, says = proximity(idea, tried), agreement(tried)
        if says is not None and weight >= LEAST_WEIGHT:
            terms.append(Term(f"{tried.verdict} neighbour", says, 2 * weight, tried.experiment))
    total = sum(t.weight for t in terms)
    value = sum(t.value * t.weight for t in terms) / total
    failed = [t for t in history if t.lever == idea.lever and t.scope == idea.scope and t.verdict in ("refuted", "inconclusive")]
    if failed:
        value *= SATURATION ** len(failed)
        terms.append(Term(f"{len(failed)} tries of this lever gained nothing here", SATURATION ** len(failed), 0.0, failed[-1].experiment))
    terms[1:] = sorted(terms[1:], key=lambda t: -t.weight)
    unknown = "" if len(terms) > 1 else "no neighbour was tried: this is the lever's prior alone"
    return Part(min(0.99, max(0.01, value)), "probability", tuple(terms), unknown)


def gain(idea: Idea, history: Sequence[Tried], frontier_speedup: float) -> Part:
    """Expected gain over the frontier as a fraction if it holds: the lever's promise, pulled by what close configurations measured."""
    promised = math.log(max(idea.gain_vs_reference, 1e-6) / frontier_speedup)
    terms = [Term("the lever's promise over the frontier", math.expm1(promised), 1.0, idea.lever)]
    log_sum, weight_sum = promised, 1.0
    for tried in history:
        weight = 3 * proximity(idea, tried) ** 2
        if tried.ratio is None or tried.verdict == "invalid" or weight < LEAST_WEIGHT:
            continue
        terms.append(Term("measured neighbour over the frontier", tried.ratio - 1, weight, tried.experiment))
        log_sum += weight * math.log(tried.ratio)
        weight_sum += weight
    value = max(LEAST_GAIN_FRAC, math.expm1(log_sum / weight_sum))
    terms[1:] = sorted(terms[1:], key=lambda t: -t.weight)
    return Part(value, "fraction of the frontier's speed", tuple(terms), "not bounded by a roofline: no profile of the frontier names its limit")


def cost(idea: Idea, history: Sequence[Tried], default_minutes: float) -> Part:
    """Minutes an experiment takes: measured on the closest ones, else the lane's budget."""
    timed = [(proximity(idea, t), t) for t in history if t.minutes and t.verdict != "invalid"]
    timed = sorted((pair for pair in timed if pair[0] > 0), key=lambda pair: -pair[0])[:3]
    if not timed:
        return Part(
            default_minutes,
            "minutes",
            (Term("the lane's budget", default_minutes, 1.0, "lane.toml"),),
            "nothing close was run: the budget stands in for a measurement",
        )
    minutes = sum(w * (t.minutes or 0.0) for w, t in timed) / sum(w for w, _ in timed)
    return Part(max(minutes, 0.01), "minutes", tuple(Term("measured", t.minutes or 0.0, w, t.experiment) for w, t in timed))


def rank(ideas: Sequence[Idea], history: Sequence[Tried], *, frontier_speedup: float, default_minutes: float) -> tuple[Ranked, ...]:
    """All ideas, best first; equal scores go to the cheaper, then by id, so that two runs agree."""
    ranked = []
    for idea in ideas:
        p, g, c = probability(idea, history), gain(idea, history, frontier_speedup), cost(idea, history, default_minutes)
        ranked.append(Ranked(idea.hypothesis, idea.statement, idea.lever, idea.knobs, p.value * g.value / c.value, p, g, c))
    return tuple(sorted(ranked, key=lambda r: (-r.score, r.cost.value, r.hypothesis)))
