"""From an absolute dotted target to symbols, through re-exports, attributes, inheritance, return types and values.

A name no source defines stays what it is: an external symbol, under the name its user's imports give it. What a lookup
consulted is remembered, so that a change of one module can be followed to whoever depended on it.
"""

from __future__ import annotations

from typing import NamedTuple

from kgagent.ingest.modules import Module, Modules
from kgagent.ingest.shapes import CALLED, CLASS, CONSTANT, FIELD, FUNCTION, MODULE, SUPER, weakest

EXTERNAL = "x"
MAX_CANDIDATES = 8
MAX_STEPS = 20  # an attribute whose value is its own attribute grows for ever
MAX_DEPTH = 100


class Symbol(NamedTuple):
    """A symbol a target may mean. `module` is None for an external one, whose `qual` is then its whole name."""

    module: Module | None
    qual: str
    kind: str
    how: str

    @property
    def id(self) -> str:
        return self.module.symbol_id(self.qual) if self.module is not None else f"sym:{self.qual}"

    @property
    def name(self) -> str:
        """Absolute dotted name."""
        if self.module is None:
            return self.qual
        return f"{self.module.name}.{self.qual}" if self.qual else self.module.name


Symbols = tuple[Symbol, ...]
Answers = dict[str, tuple[Symbols, frozenset[str]]]


class Resolver:
    """Lookups on behalf of one source at a time; answers are remembered with the modules they rest on."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.home = 0
        self.consulted: set[str] = set()
        self._memo: Answers = {}
        self._asked: Answers = {}  # answers to whole questions that a circle cut short somewhere
        self._below: Answers = {}  # the same, for parts of the question being answered
        self._starred: dict[int, tuple[list[Module], frozenset[str]]] = {}
        self._cuts = 0
        self._open: set[str] = set()

    def start(self, source: int) -> None:
        """Begin a file of a source: nothing consulted yet."""
        if source != self.home and self.modules.shared:
            self._memo.clear()
            self._asked.clear()
            self._starred.clear()
        self.home = source
        self.consulted = set()
        self._open.clear()  # a fault in the file before may have left questions open

    def resolve(self, target: str) -> Symbols:
        """The symbols a target may mean; () when a known class or module has no such member.

        Names can go in circles (star imports do). What was cut short by one is true only below the question that was asked,
        so it is kept for that question alone; answers must not depend on what was asked before.
        """
        outermost = not self._open
        if outermost:
            self._below = {}
        known = self._memo.get(target) or (self._asked if outermost else self._below).get(target)
        if known is not None:
            self.consulted |= known[1]
            self._cuts += target not in self._memo
            return known[0]
        if target.count(".") > MAX_STEPS:
            return ()
        if target in self._open or len(self._open) > MAX_DEPTH:
            self._cuts += 1
            return ()
        cuts = self._cuts
        self._open.add(target)
        outer, self.consulted = self.consulted, set()
        found = self._resolve(target)
        mine = frozenset(self.consulted)
        self.consulted = outer | mine
        self._open.discard(target)
        remembered = self._memo if self._cuts == cuts else self._asked if outermost else self._below
        remembered[target] = (found, mine)
        return found

    def _resolve(self, target: str) -> Symbols:
        steps = target.split(".")
        plain = next((i for i, step in enumerate(steps) if step in (CALLED, SUPER)), len(steps))
        for length in range(plain, 0, -1):
            name = ".".join(steps[:length])
            module = self.modules.get(name, self.home)
            if module is not None:
                self.consulted.add(name)
                if length == plain and length > 1:
                    shadowed = self.shadowing(steps, length)
                    if shadowed:
                        return limited(shadowed)
                return limited(self.walk(Symbol(module, "", MODULE, "exact"), steps[length:]))
        self.consulted.add(steps[0])
        if plain < len(steps):
            return ()
        return (Symbol(None, target, EXTERNAL, "exact"),)

    def shadowing(self, steps: list[str], length: int) -> Symbols:
        """What a package calls by the name of one of its modules, as after `from pkg.f import f`: that is what importers get."""
        name, last = ".".join(steps[: length - 1]), steps[length - 1]
        self.consulted.add(name)
        package = self.modules.get(name, self.home)
        if package is None:
            return ()
        surface = self.modules.surface(package)
        imported = [target for target, _ in surface.get("i", {}).get(last, ())]
        if last not in surface.get("more", ()) and (not imported or f"{package.name}.{last}" in imported):
            return ()
        return self.module_member(Symbol(package, "", MODULE, "exact"), last, steps[length:], "exact")

    def walk(self, start: Symbol, steps: list[str]) -> Symbols:
        """Follow the steps from a symbol."""
        here = start
        for index, step in enumerate(steps):
            rest = steps[index + 1 :]
            if step == CALLED:
                if here.kind == CLASS:
                    if not rest:
                        return self.member(here, "__call__", [], weakest(here.how, "inferred"))
                    continue
                return self.result_of(here, rest)
            if step == SUPER:
                return self.base_member(here, rest)
            child = self.child(here, step)
            if child is None:
                return self.member(here, step, rest, here.how)
            here = child
        if here.kind == CONSTANT:
            return self.through_alias(here)
        return (here,)

    def child(self, here: Symbol, step: str) -> Symbol | None:
        """A definition that stands directly below; None where it must be looked for elsewhere (or in several places)."""
        if here.module is None:
            return None
        surface = self.modules.surface(here.module)
        if here.kind == MODULE and step in surface.get("more", ()):
            return None
        qual = f"{here.qual}.{step}" if here.qual else step
        kind = surface["d"].get(qual)
        return Symbol(here.module, qual, kind, here.how) if kind is not None else None

    def member(self, here: Symbol, step: str, rest: list[str], how: str) -> Symbols:
        """A name that isn't defined directly below `here`."""
        if here.module is None:
            return ()
        surface = self.modules.surface(here.module)
        if here.kind == MODULE:
            return self.module_member(here, step, rest, how)
        if here.kind == CLASS:
            child = self.child(here, step)
            if child is not None:
                return self.walk(child._replace(how=how), rest)
            found = self.follow(surface.get("a", {}).get(here.qual, {}).get(step, ()), rest, weakest(how, "inferred"))
            return found or self.base_member(here, [step, *rest])
        if here.kind in (CONSTANT, FIELD):
            is_name, targets = surface.get("v", {}).get(here.qual, (False, ()))
            return self.follow(targets, [step, *rest], weakest(how, "re-export" if is_name else "inferred"))
        return ()

    def module_member(self, here: Symbol, step: str, rest: list[str], how: str) -> Symbols:
        """Defined in several branches, imported, a submodule, or behind a star import; else external under this name."""
        assert here.module is not None
        surface = self.modules.surface(here.module)
        several = surface.get("more", {}).get(step)
        if several:
            found: list[Symbol] = []
            for qual in several:
                found += self.walk(Symbol(here.module, qual, surface["d"][qual], weakest(how, "candidate")), rest)
            return tuple(found)
        imported = surface.get("i", {}).get(step)
        if imported:
            return self.follow(imported, rest, weakest(how, "re-export"))
        name = f"{here.module.name}.{step}"
        self.consulted.add(name)
        module = self.modules.get(name, self.home)
        if module is not None:
            return self.walk(Symbol(module, "", MODULE, how), rest)
        for starred in self.starred(here.module):
            there = self.modules.surface(starred)
            exported = not step.startswith("_") or step in (there.get("all") or ())
            if exported and (step in there["d"] or step in there.get("i", ()) or step in there.get("more", ())):
                found_there = self.walk(Symbol(starred, "", MODULE, weakest(how, "re-export")), [step, *rest])
                return tuple(s._replace(how=weakest(s.how, how, "re-export")) for s in found_there)
        if CALLED in rest or SUPER in rest:
            return ()
        return (Symbol(None, ".".join((name, *rest)), EXTERNAL, "unresolved"),)

    def starred(self, module: Module) -> list[Module]:
        """Modules whose names a module has through star imports, nearest first; star imports may go in circles."""
        known = self._starred.get(module.file)
        if known is None:
            order, names, queue = [], set(), list(self.modules.surface(module).get("s", ()))
            while queue:
                name = queue.pop(0)
                if name in names:
                    continue
                names.add(name)
                found = self.modules.get(name, self.home)
                if found is None:
                    names.add(name.partition(".")[0])
                elif found is not module:
                    order.append(found)
                    queue += self.modules.surface(found).get("s", ())
            known = self._starred[module.file] = (order, frozenset(names))
        self.consulted |= known[1]
        return known[0]

    def follow(self, targets: list[list[str]] | tuple[()], rest: list[str], how: str) -> Symbols:
        """Each of a binding's targets, with the remaining steps; several are candidates."""
        found: dict[str, Symbol] = {}
        for name, target_how in targets:
            for symbol in self.resolve(".".join((name, *rest))):
                found.setdefault(symbol.id, symbol._replace(how=weakest(symbol.how, how, target_how if target_how != "alias" else how)))
        if len(found) > 1:
            return tuple(s._replace(how=weakest(s.how, "candidate")) for s in found.values())
        return tuple(found.values())

    def through_alias(self, here: Symbol) -> Symbols:
        """A constant that only renames something means that something."""
        if here.module is None:
            return (here,)
        is_name, targets = self.modules.surface(here.module).get("v", {}).get(here.qual, (False, ()))
        if not is_name:
            return (here,)
        found = self.follow(targets, [], weakest(here.how, "re-export"))
        return found if found and all(s.how != "unresolved" for s in found) else (here,)

    def result_of(self, here: Symbol, rest: list[str]) -> Symbols:
        """What calling a function (by its return annotation) or a constant gives, with further steps."""
        if here.module is None:
            return ()
        surface = self.modules.surface(here.module)
        if here.kind == FUNCTION:
            made = self.follow(surface.get("q", {}).get(here.qual, ()), rest, "inferred")
            if made or not rest:
                return made
            found: list[Symbol] = []
            for name, _ in surface.get("r", {}).get(here.qual, ()):
                found += self.resolve(".".join((name, CALLED, *rest)))
            return tuple(s._replace(how=weakest(s.how, "inferred")) for s in found)
        if here.kind in (CONSTANT, FIELD):
            _, targets = surface.get("v", {}).get(here.qual, (False, ()))
            return self.follow(targets, [CALLED, *rest], "inferred")
        return ()

    def bases(self, here: Symbol) -> Symbols:
        """The ingested or external classes a class derives from, in order."""
        if here.module is None:
            return ()
        found: list[Symbol] = []
        for targets in self.modules.surface(here.module).get("b", {}).get(here.qual, ()):
            found += self.follow(targets, [], "exact")
        return tuple(found)

    def base_member(self, here: Symbol, steps: list[str], seen: frozenset[str] = frozenset()) -> Symbols:
        """A member inherited from a base, depth first."""
        if not steps or here.kind != CLASS or here.id in seen:
            return ()
        for base in self.bases(here):
            if base.kind != CLASS or base.module is None:
                continue
            child = self.child(base, steps[0])
            how = weakest(here.how, base.how, "inferred")
            if child is not None:
                return self.walk(child._replace(how=how), steps[1:])
            attributes = self.modules.surface(base.module).get("a", {}).get(base.qual, {}).get(steps[0])
            if attributes:
                return self.follow(attributes, steps[1:], how)
            found = self.base_member(base, steps, seen | {here.id})
            if found:
                return found
        return ()

    def mro(self, here: Symbol) -> list[Symbol]:
        """A class and the ingested classes above it, nearest first."""
        order, queue = [here], list(self.bases(here))
        while queue and len(order) < 40:
            base = queue.pop(0)
            if base.kind == CLASS and base.module is not None and all(base.id != known.id for known in order):
                order.append(base)
                queue += self.bases(base)
        return order


def limited(found: Symbols) -> Symbols:
    """Too many candidates are no answer."""
    return found if len(found) <= MAX_CANDIDATES else ()
