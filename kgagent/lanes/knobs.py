"""Knobs: one spelling per configuration, so that equal configurations hash equal and are tried once."""

from __future__ import annotations

from collections.abc import Mapping

from kgagent.errors import UsageError
from kgagent.lanes.records import Knob, Lane, LaneLever, Scalar, spell
from kgagent.objects import canonical_json, sha256_hex


def canonical_knobs(lane: Lane, knobs: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Defaults filled in, inapplicable knobs dropped, values checked; text such as "256" or "false" is read as the choice it spells."""
    known = {knob.name: knob for knob in lane.knobs}
    for name in knobs:
        if name not in known:
            raise UsageError(f"lane {lane.name} has no knob {name!r}", hint=f"its knobs: {', '.join(known)}")
    chosen = {name: _choice(lane, knob, knobs[name]) if name in knobs else knob.default for name, knob in known.items()}
    dropped: set[str] = set()
    while True:  # a knob may hang on one that was dropped
        gone = {k.name for k in lane.knobs if k.name not in dropped and any(w in dropped or chosen[w] not in allowed for w, allowed in k.when)}
        if not gone:
            return {name: value for name, value in sorted(chosen.items()) if name not in dropped}
        dropped |= gone


def _choice(lane: Lane, knob: Knob, value: Scalar) -> Scalar:
    for choice in knob.choices:
        if (value == choice and type(value) is type(choice)) or (isinstance(value, str) and value == spell(choice)):
            return choice
    allowed = ", ".join(spell(choice) for choice in knob.choices)
    raise UsageError(f"{knob.name}={spell(value)} isn't a choice of lane {lane.name}", where=str(lane.folder / "lane.toml"), hint=f"choose one of: {allowed}")


def matching_levers(lane: Lane, knobs: Mapping[str, Scalar], parent: Mapping[str, Scalar]) -> tuple[LaneLever, ...]:
    """Levers pulled by going from the parent's knobs to these: the value's own lever, else the knob's "*" one."""
    found = []
    for name, value in knobs.items():
        if parent.get(name) == value:
            continue
        mine = [lever for lever in lane.levers if lever.knob == name]
        exact = [lever for lever in mine if lever.value == value and type(lever.value) is type(value)]
        found += exact or [lever for lever in mine if lever.value == "*"]
    return tuple(found)


def candidate_code_sha(lane: Lane) -> str:
    """One hash of all files a candidate may change."""
    return sha256_hex(canonical_json({name: sha256_hex(lane.files[name]) for name in lane.mutable}))
