"""One file's facts against all modules: the edges that stand in it, the kernels it launches, and what both rest on."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kgagent.ingest.launches import Launch, Launches
from kgagent.ingest.modules import Module
from kgagent.ingest.registries import ANY
from kgagent.ingest.resolve import EXTERNAL, Resolver, Symbol
from kgagent.ingest.shapes import CLASS, FUNCTION, HOW_RANK, HOWS

TYPES = ("calls", "uses")
FLAX_MODULE = re.compile(r"flax\.(linen|nnx)(?:\.module)?\.Module\Z")
# Methods Python or Flax calls on an instance without being named.
IMPLICIT = frozenset({"__call__", "__init__", "__post_init__", "__init_subclass__", "setup"})


class Relation(NamedTuple):
    """An edge to be written; ids, because one end may not exist yet."""

    src: str
    type: str
    dst: str
    line: int
    how: str
    role: str = ""  # what the edge's data says: forward or backward


@dataclass(slots=True)
class Related:
    """What resolving one file gave."""

    relations: list[Relation] = field(default_factory=list)
    externals: dict[str, str] = field(default_factory=dict)  # id → dotted name, of symbols no source defines
    launches: list[Launch] = field(default_factory=list)
    frameworks: dict[int, str] = field(default_factory=dict)  # class → the framework whose module it is
    consulted: set[str] = field(default_factory=set)
    unresolved: int = 0
    calls: int = 0


class Relator:
    """Resolves files, one at a time."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.launches = Launches(resolver)

    def relate(self, facts: dict[str, Any], module: Module, path: str) -> Related:
        self.resolver.start(module.source)
        out = Related(unresolved=facts["unresolved"], calls=facts["unresolved"])
        best: dict[tuple[str, str, str, int], int] = {}
        quals, names = facts["quals"], facts["names"]
        ids = [module.symbol_id(qual) for qual in quals]
        resolved: dict[int, tuple[tuple[str, int], ...]] = {}
        for symbol, type_, line, _, targets in facts["references"]:
            source = ids[symbol]
            reached = False
            several = len(targets) > 2
            for position in range(0, len(targets), 2):
                name = targets[position]
                known = resolved.get(name)
                if known is None:
                    known = resolved[name] = self.meanings(names[name], out)
                rank = targets[position + 1]
                for id_, how in known:
                    reached = True
                    if id_ == source:
                        continue
                    certainty = max(rank, how, 4 if several or len(known) > 1 else 0)
                    key = (source, TYPES[type_], id_, line)
                    if best.get(key, 9) > certainty:
                        best[key] = certainty
            if type_ == 0:
                out.calls += 1
                out.unresolved += not reached
        for symbol, dotted, line in facts["imports"]:
            for id_, how in self.meanings(dotted, out):
                if id_ != ids[symbol]:
                    best.setdefault((ids[symbol], "imports", id_, line), how)
        self.entries(facts, ids, out, best)
        gradients = self.gradients(facts, module, out)
        self.dispatch(facts, module, ids, best)
        out.frameworks = self.frameworks(facts, module)
        out.relations = [Relation(src, type_, dst, line, HOWS[rank]) for (src, type_, dst, line), rank in best.items()]
        out.relations += [edge for edge in gradients if (edge.src, "uses", edge.dst, edge.line) not in best]
        out.launches = self.launches.of_file(facts, module, path)
        for launch in out.launches:
            for id_, certainty in launch.bodies:
                if certainty != "unresolved" and not self.known(id_):
                    out.externals.setdefault(id_, id_.removeprefix("sym:"))
        out.consulted = self.resolver.consulted
        return out

    def known(self, id_: str) -> bool:
        """Whether an id is a symbol of an ingested module (approximately: its module is)."""
        parts = id_.removeprefix("sym:").split(".")
        return any(".".join(parts[:length]) in self.resolver.modules for length in range(len(parts), 0, -1))

    def meanings(self, target: str, out: Related) -> tuple[tuple[str, int], ...]:
        """(id, rank of how) of each symbol a target may mean; external ones are noted."""
        found = []
        for symbol in self.resolver.resolve(target):
            if symbol.kind == EXTERNAL:
                out.externals.setdefault(symbol.id, symbol.qual)
            found.append((symbol.id, HOW_RANK[symbol.how]))
        return tuple(found)

    def entries(self, facts: dict[str, Any], ids: list[str], out: Related, best: dict[tuple[str, str, str, int], int]) -> None:
        """What is registered under a name, and who asks for it, through the symbol of that entry; `[*]` is reached from all."""
        for symbol, holders, key, line, registered in facts.get("entries", ()):
            for holder, _ in holders:
                for found in self.resolver.resolve(holder):
                    for each in dict.fromkeys((key, ANY)) if registered else (key,):
                        dotted = f"{found.name}[{each}]"
                        entry, rank = f"sym:{dotted}", HOW_RANK["candidate" if each == ANY else "inferred"]
                        ends = [id_ for name, _ in registered for id_, _ in self.meanings(name, out)]
                        if ends or not registered:
                            out.externals[entry] = dotted
                        for end in ends:
                            best.setdefault((entry, "uses", end, line), rank)
                        if not registered:
                            best.setdefault((ids[symbol], "uses", entry, line), rank)

    def gradients(self, facts: dict[str, Any], module: Module, out: Related) -> list[Relation]:
        """`f.defvjp(fwd, bwd)`: whoever differentiates f reaches both, and the edges say which is which."""
        found: dict[tuple[str, str, int], Relation] = {}
        for primal, forward, backward, line in facts["vjps"]:
            for name, how in primal:
                for symbol in self.resolver.resolve(name):
                    if symbol.module is not module:  # an edge stands in its source's own file
                        continue
                    for role, targets in (("forward", forward), ("backward", backward)):
                        for target, target_how in targets:
                            for id_, rank in self.meanings(target, out):
                                certainty = max(rank, HOW_RANK[how], HOW_RANK[target_how], HOW_RANK[symbol.how])
                                found.setdefault((symbol.id, id_, line), Relation(symbol.id, "uses", id_, line, HOWS[certainty], role))
        return list(found.values())

    def dispatch(self, facts: dict[str, Any], module: Module, ids: list[str], best: dict[tuple[str, str, str, int], int]) -> None:
        """A class uses those of its methods that are called without its name: by Python, by Flax, or by code it inherits."""
        methods: dict[int, list[int]] = {}
        for index, parent in enumerate(facts["parents"]):
            if parent >= 0 and facts["kinds"][index] == FUNCTION and facts["kinds"][parent] == CLASS:
                methods.setdefault(parent, []).append(index)
        for owner, members in methods.items():
            here = Symbol(module, facts["quals"][owner], CLASS, "exact")
            above: list[Symbol] | None = None
            for member in members:
                name = facts["quals"][member].rsplit(".", 1)[-1]
                overrides = name in IMPLICIT
                if not overrides and not (name.startswith("__") and name.endswith("__")):
                    above = self.resolver.mro(here)[1:] if above is None else above
                    overrides = any(self.resolver.child(base, name) is not None for base in above)
                if overrides:
                    best.setdefault((ids[owner], "uses", ids[member], facts["lines"][member]), HOW_RANK["inferred"])

    def frameworks(self, facts: dict[str, Any], module: Module) -> dict[int, str]:
        """Classes that are Flax modules through any number of bases, ingested or not."""
        if module.document:
            return {}
        derived = self.resolver.modules.surface(module).get("b", {})
        found = {}
        for index, qual in enumerate(facts["quals"]):
            if qual in derived:
                for each in self.resolver.mro(Symbol(module, qual, CLASS, "exact")):
                    names = [each.name, *(base.name for base in self.resolver.bases(each))]
                    match = next((m for m in map(FLAX_MODULE.match, names) if m), None)
                    if match:
                        found[index] = f"flax.{match.group(1)}"
                        break
        return found


def defines(facts: dict[str, Any], module: Module, file_id: str) -> list[Relation]:
    """The tree of definitions: file → module → classes and functions → their own; in a document, file → sections."""
    ids = [module.symbol_id(qual) for qual in facts["quals"]]
    lines = facts["lines"]
    return [Relation(ids[parent] if parent >= 0 else file_id, "defines", ids[index], lines[index], "exact") for index, parent in enumerate(facts["parents"])]
