"""Proposals from knob domains: every single move from the frontier that nobody has made yet, as a whole hypothesis.

A proposer is never trusted: what it writes goes through `create_hypothesis` and its refusals like anybody's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kgagent.errors import Refused, UsageError
from kgagent.executor import create_hypothesis
from kgagent.graph import Graph
from kgagent.lanes import Lane, LaneLever, canonical_knobs, matching_levers
from kgagent.lanes.records import Scalar, spell
from kgagent.lanes.sync import lever_id
from kgagent.objects import canonical_json

ORIGIN = "planner:knob-move"

# Configurations proposed or tried at a scope.
KNOWN = """SELECT c.knobs FROM hypothesis h JOIN configuration c ON c.key = h.configuration JOIN node s ON s.key = h.scope WHERE s.id = ?
  UNION SELECT c.knobs FROM experiment e JOIN configuration c ON c.key = e.configuration JOIN node s ON s.key = e.scope WHERE s.id = ?"""


@dataclass(frozen=True, slots=True)
class Move:
    """One knob set to one value, from a starting configuration."""

    lever: LaneLever
    knobs: dict[str, Scalar]


def moves(lane: Lane, start: Mapping[str, Scalar]) -> Iterator[Move]:
    """All moves of one knob that some lever of the lane explains, in the lane's order."""
    origin = canonical_knobs(lane, start)
    for knob in lane.knobs:
        if knob.name not in origin:
            continue
        for choice in knob.choices:
            if choice == origin[knob.name] and type(choice) is type(origin[knob.name]):
                continue
            knobs = canonical_knobs(lane, {**origin, knob.name: choice})
            pulled = [lever for lever in matching_levers(lane, knobs, origin) if lever.knob == knob.name]
            if pulled:
                yield Move(pulled[0], knobs)


def default_knobs(lane: Lane) -> dict[str, Scalar]:
    """The configuration nobody changed: the reference's."""
    return canonical_knobs(lane, {})


def propose(graph: Graph, lane: Lane, scope: str, start: Mapping[str, Scalar], speedup: float) -> tuple[str, ...]:
    """Write what is new as open hypotheses and return their ids; a change tried or proposed at this scope is left out.

    `speedup` is the start's own, measured over the reference.
    """
    known = {row[0] for row in graph.rows(KNOWN, scope, scope)}
    created = []
    for move in moves(lane, start):
        if canonical_text(move.knobs) in known:
            continue
        try:
            created.append(_write(graph, lane, move.lever, move.knobs, start, speedup, ORIGIN))
        except Refused:
            continue  # somebody proposed it between the look and the write
    return tuple(created)


def hypothesis_for(
    graph: Graph, lane: Lane, knobs: Mapping[str, Scalar], scope: str, start: Mapping[str, Scalar], speedup: float, *, whats_new: str = ""
) -> str:
    """A person's own configuration as a hypothesis: the open one that says the same, else a new one in the words of the first lever pulled.

    Raises `Refused` when the change was tried here and `whats_new` is empty, `UsageError` when no lever of the lane speaks of it.
    """
    chosen = canonical_knobs(lane, knobs)
    known = graph.value(
        "SELECT n.id FROM hypothesis h JOIN node n ON n.key = h.key JOIN node s ON s.key = h.scope JOIN configuration c ON c.key = h.configuration"
        " WHERE s.id = ? AND c.knobs = ? AND h.status = 'open' ORDER BY h.key DESC LIMIT 1",
        scope,
        canonical_text(chosen),
    )
    if known and not whats_new:
        return str(known)
    pulled = matching_levers(lane, chosen, canonical_knobs(lane, start)) or matching_levers(lane, chosen, default_knobs(lane))
    if not pulled:
        raise UsageError(
            "that is the reference's own configuration: there is nothing to find out", hint="set a knob to another value; kgagent show lane:" + lane.name
        )
    return _write(graph, lane, pulled[0], chosen, start, speedup, "person", whats_new)


def _write(
    graph: Graph,
    lane: Lane,
    lever: LaneLever,
    knobs: Mapping[str, Scalar],
    start: Mapping[str, Scalar],
    speedup: float,
    origin: str,
    whats_new: str = "",
) -> str:
    """The statement names what the change is tested over; the gain is promised over the reference, whatever the frontier does meanwhile."""
    return create_hypothesis(
        graph,
        lane,
        knobs,
        statement=f"{lever.statement} Tested: {spelled(knobs)} over the frontier (when proposed: {spelled(start)}).",
        mechanism=lever.mechanism,
        predicted_signal=lever.predicted_signal,
        falsification=lever.falsification,
        origin=origin,
        lever=lever_id(lane, lever),
        prior=lever.prior,
        expected_gain=speedup * promised_ratio(lane, knobs, start),
        cost_minutes=lane.budgets.experiment_minutes,
        whats_new=whats_new,
    )


def promised_ratio(lane: Lane, knobs: Mapping[str, object], start: Mapping[str, object]) -> float:
    """Speed over the start that the levers promise: gains of those pulled over gains of those let go."""
    ratio = 1.0
    for name in set(knobs) | set(start):
        if knobs.get(name) != start.get(name):
            ratio *= _lever_gain(lane, name, knobs.get(name)) / _lever_gain(lane, name, start.get(name))
    return ratio


def _lever_gain(lane: Lane, knob: str, value: object) -> float:
    """The gain a knob's value promises over the knob's default; 1 where no lever speaks of it."""
    default = next((k.default for k in lane.knobs if k.name == knob), None)
    if value is None or value == default:
        return 1.0
    exact = [lever for lever in lane.levers if lever.knob == knob and lever.value == value]
    general = [lever for lever in lane.levers if lever.knob == knob and lever.value == "*"]
    return (exact or general)[0].expected_gain if exact or general else 1.0


def canonical_text(knobs: Mapping[str, Scalar]) -> str:
    """Knobs as the configuration table spells them."""
    return canonical_json(dict(knobs))


def spelled(knobs: Mapping[str, object]) -> str:
    """`impl=chunked block_q=256`, as it can be typed after --set."""
    return " ".join(f"{name}={spell(value)}" for name, value in knobs.items() if isinstance(value, (str, int, float, bool)))
