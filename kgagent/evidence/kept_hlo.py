"""The HLO that stands behind a recorded run: of an added profile from its manifest, of a compile from the text that was kept."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kgagent.errors import UnknownThing, UsageError
from kgagent.evidence.add import FOLDER, stored_profile
from kgagent.evidence.attribution import Attribution
from kgagent.evidence.diff import ModuleDiff, diff
from kgagent.evidence.hlo import Module, parse_hlo
from kgagent.evidence.views import Neighbour, neighbourhood
from kgagent.graph.store import Graph

_BODY = re.compile(r'"body":\s*"[^"]*"')


def modules_of(graph: Graph, run: str) -> dict[str, Module]:
    """Modules of a run by name, the one with most weight first; {} where no HLO was kept."""
    node = graph.need(run)
    if node.kind != "profile":
        raise UsageError(f"{run} is a {node.kind}, not a profile or compile", hint="kgagent find compile: lists what was compiled")
    sha = node.data.get("hlo_sha")
    if sha:
        module = parse_hlo(graph.objects.get(str(sha)), where=run)
        return {module.name: module}
    name = run.partition(":")[2]
    if not (graph.workspace.raw / FOLDER / f"{name}.json").is_file():
        return {}
    kept = stored_profile(graph, name)
    weight: dict[str, int] = {}
    for op in kept.profile.ops():
        weight[op.module] = weight.get(op.module, 0) + op.self_ps
    return dict(sorted(kept.modules().items(), key=lambda item: -weight.get(item[0], 0)))


def diff_of(graph: Graph, a: str, b: str) -> ModuleDiff | None:
    """What came and went from `a` to `b`, between the heaviest module of each; None where either kept no HLO."""
    sides = [next(iter(modules_of(graph, run).values()), None) for run in (a, b)]
    if sides[0] is None or sides[1] is None:
        return None
    return diff(sides[0], sides[1])


@dataclass(frozen=True, slots=True)
class Around:
    """One instruction in its module."""

    module: str
    computation: str
    name: str
    text: str  # without what a kernel's body holds
    frames: tuple[str, ...]  # path:line of the dominant origin, innermost first
    neighbours: tuple[Neighbour, ...]


def around(graph: Graph, run: str, name: str, module: str | None = None) -> Around:
    """An instruction of a run's HLO with its frames and neighbours; the first module that has it, unless one is named."""
    modules = modules_of(graph, run)
    if module is not None:
        if module not in modules:
            raise UnknownThing(f"no module {module!r} in {run}", hint=f"it has {', '.join(modules)}" if modules else "no HLO was kept for it")
        modules = {module: modules[module]}
    if not modules:
        raise UnknownThing(f"no HLO was kept for {run}", hint="add the profile again with --hlo FILE")
    chosen = next((m for m in modules.values() if any(name in c.by_name for c in m.computations.values())), next(iter(modules.values())))
    neighbours = neighbourhood(chosen, name)
    home = next(c for c in chosen.computations.values() if name in c.by_name)
    found = home.by_name[name]
    origins = Attribution(chosen).origins(home, found)
    frames = tuple(frame.place for frame in origins[0].frames) if origins else ()
    return Around(chosen.name, home.name, name, _BODY.sub('"body":"…"', found.text.strip()), frames, neighbours)
