"""From one file's bytes to what the graph keeps of it: symbols, a surface others can see, and facts about what it uses.

Runs in worker processes. The surface is small and read often; the facts are compressed and read only when the file is resolved.
"""

from __future__ import annotations

from typing import Any

from kgagent.ingest.copies import sketch
from kgagent.ingest.modules import pack
from kgagent.ingest.reading import BODY_NAME, NOT_TUNABLE, TUNABLE, Reading
from kgagent.ingest.registries import entries_of
from kgagent.ingest.scopes import BUILTINS, MAX_CANDIDATES, PARTIAL, TRANSFORMS, Names, Scope, Value
from kgagent.ingest.shapes import FACTS_VERSION, FUNCTION, HOW_RANK, REEXPORT, Site, Symbol, Target
from kgagent.ingest.sites import SiteReader
from kgagent.ingest.surfaces import with_surfaces
from kgagent.ingest.syntax import Walker

PALLAS_MARKS = ("pallas", "mosaic", "triton")


Tunables = dict[str, list[list[Any]]]  # class or function → [name, line, default]


def read_python(source: bytes, module: str, is_package: bool, submodules: tuple[str, ...] = ()) -> tuple[list[Symbol], bytes, bytes, Tunables, Any]:
    """(symbols, surface, facts, tunables, the syntax tree's root)."""
    root = parser().parse(source).root_node
    reading = Walker(source, module, is_package, submodules).read(root)
    names = Names(module, has_stars=bool(reading.stars))
    reader = SiteReader(reading, names)
    sites = [site for site in map(reader.read, reading.sites) if site is not None and (site.callee or site.callee_text.endswith("pallas_call"))]
    uses_pallas = any(mark in b.target for s in reading.scopes for bs in s.names.values() for b in bs if b.kind == "import" for mark in PALLAS_MARKS)
    tunables = tunables_of(reading, uses_pallas)
    surface = surface_of(reading, names, sites, tunables, uses_pallas)
    facts = facts_of(reading, names, sites, tunables)
    symbols = with_surfaces(reading, names)
    if uses_pallas:
        facts["sketches"] = sketches_of(reading, sites)
    for scope in reading.scopes:  # scopes and bindings hold each other: let go at once, not when a collector comes by
        scope.names.clear()
        scope.memo.clear()
        scope.parent = None
    return symbols, pack(surface), pack(facts), tunables, root


_PARSER: list[Any] = []


def parser() -> Any:
    """One tree-sitter parser a process."""
    if not _PARSER:
        import tree_sitter
        import tree_sitter_python

        _PARSER.append(tree_sitter.Parser(tree_sitter.Language(tree_sitter_python.language())))
    return _PARSER[0]


def plain(targets: tuple[Target, ...]) -> list[list[str]]:
    return [[t.name, t.how] for t in targets]


def surface_of(reading: Reading, names: Names, sites: list[Site], tunables: Tunables, uses_pallas: bool) -> dict[str, Any]:
    """What a lookup from another file needs: definitions, imports, bases, attributes, return types, tunables."""
    top = reading.scopes[0]
    imports: dict[str, list[list[str]]] = {}
    for name, bindings in top.names.items():
        found = {b.target: b.how for b in bindings if b.kind == "import"}
        if found:
            imports[name] = [[target, how] for target, how in found.items()]
    values: dict[str, Any] = {}
    for qual, (scope, value) in reading.constants.items():
        targets = names.value_targets(value, scope)
        if targets:
            values[qual] = [value.kind == "name", plain(targets)]
    attributes: dict[str, dict[str, Any]] = {}
    for qual, members in reading.class_attributes.items():
        for name, assigned in members.items():
            found = {t.name: t.how for value, scope in assigned for t in names.value_targets(value, scope)}
            if found:
                attributes.setdefault(qual, {})[name] = [[target, how] for target, how in found.items()]
    returns = {}
    for qual, (scope, value) in reading.returns.items():
        targets = names.value_targets(value, scope)
        if targets:
            returns[qual] = plain(targets)
    definitions: dict[str, Any] = {}
    for symbol in reading.symbols[1:]:
        if symbol.kind != REEXPORT:
            definitions[symbol.qual] = symbol.kind
    surface: dict[str, Any] = {"d": definitions}  # nothing here moves with line numbers: moved lines change no other file
    optional = {
        "i": imports,
        "v": values,
        "a": attributes,
        "r": returns,
        "q": returned_definitions(reading, names),
        "b": {qual: [plain(names.value_targets(value, scope)) for value in bases] for qual, (scope, bases) in reading.bases.items() if bases},
        "s": reading.stars,
        "all": reading.exported,
        "t": {qual: [name for name, _, _ in rows] for qual, rows in tunables.items()},
        "n": annotations_of(reading, names) if uses_pallas else {},
        "p": pallas_use(reading, names) if uses_pallas else {},
        "w": wrapper_sites(reading, names, sites),
        "more": multiple_definitions(top, reading),
    }
    surface.update({key: value for key, value in optional.items() if value})
    return surface


def returned_definitions(reading: Reading, names: Names) -> dict[str, list[list[str]]]:
    """Functions that return something defined: what they define inside, a module or function they chose, or a partial of one."""
    found = {}
    for qual, values in reading.returned.items():
        targets = {t.name: t.how for value, scope in values if not names.is_given(scope, value) for t in names.value_targets(value, scope) if "(" not in t.name}
        targets.pop(names.absolute(qual), None)
        if 0 < len(targets) <= MAX_CANDIDATES:
            found[qual] = [[name, how] for name, how in targets.items()]
    return found


def sketches_of(reading: Reading, sites: list[Site]) -> dict[str, list[int]]:
    """The sketch of every function of this file that is handed to a call: kernel bodies are among them."""
    prefix = reading.module + "."
    handed = {t.name.removeprefix(prefix) for site in sites for argument in site.arguments for t in argument.targets if t.name.startswith(prefix)}
    if not handed:
        return {}
    lines = reading.text.source.decode("utf-8", "replace").split("\n")
    found = {s.qual: sketch(lines[s.line_start : s.line_end]) for s in reading.symbols if s.kind == FUNCTION and s.qual in handed}
    return {qual: values for qual, values in found.items() if values}


def multiple_definitions(top: Scope, reading: Reading) -> dict[str, list[str]]:
    """Names a module defines in several branches, all candidates, or under another id, since a submodule has the plain one."""
    found = {}
    for name, bindings in top.names.items():
        quals = [b.target for b in bindings if b.kind == "def"]
        if len(quals) > 1 or (quals and quals != [name]):
            found[name] = quals
    return found


def tunables_of(reading: Reading, parameters_too: bool) -> Tunables:
    """Block-size fields of classes and block-size parameters of functions: [name, line, default]."""
    found: dict[str, list[list[Any]]] = {}
    for qual, rows in reading.fields.items():
        mine = [[name, line, default] for name, line, _, default in rows if TUNABLE.match(name) and not NOT_TUNABLE.match(name)]
        if mine:
            found[qual] = mine
    for qual, parameters in reading.parameters.items() if parameters_too else ():
        mine = [[name, line, default] for name, line, default, _ in parameters if TUNABLE.match(name) and not NOT_TUNABLE.match(name)]
        if mine:
            found[qual] = mine
    return found


def pallas_use(reading: Reading, names: Names) -> dict[str, list[str]]:
    """Per function the absolute names under a Pallas backend that it reads: what tells a kernel's backend where its launch doesn't."""
    found: dict[str, set[str]] = {}
    reads = [(scope, chain) for scope in reading.scopes for chain in scope.uses]
    reads += [(scope, chain) for scope, chain, _ in reading.calls if "(" not in chain]
    for scope, chain in reads:
        if scope.symbol and "." in chain:
            for target in names.static(scope, chain):
                if any(mark in target.name for mark in PALLAS_MARKS):
                    found.setdefault(reading.symbols[scope.symbol].qual, set()).add(target.name)
    return {qual: sorted(known) for qual, known in found.items()}


def wrapper_sites(reading: Reading, names: Names, sites: list[Site]) -> dict[str, list[Any]]:
    """Functions that may launch a function they are given: qual → [parameter, its position, callee, slot in that call].

    A nested function counts as the parameter it calls: wrappers usually launch a closure around the caller's kernel.
    """
    found: dict[str, list[Any]] = {}
    by_qual = {s.qual: index for index, s in enumerate(reading.symbols)}
    calls: dict[int, list[tuple[Scope, str]]] = {}
    for scope, chain, _ in reading.calls:
        if "." not in chain and "(" not in chain and BODY_NAME.match(chain):
            calls.setdefault(scope.symbol, []).append((scope, chain))
    for site in sites:
        if site.symbol == 0 or not site.callee or any(t.name in PARTIAL or t.name in TRANSFORMS for t in site.callee):
            continue
        for argument in site.arguments:
            owner = argument.parameter or closure_parameter(argument.targets, reading, names, by_qual, calls)
            qual, _, parameter = owner.partition(":")
            if not BODY_NAME.match(parameter):
                continue
            position = next((i for i, row in enumerate(reading.parameters.get(qual, ())) if row[0] == parameter), -1)
            if position >= 0:
                found.setdefault(qual, []).append([parameter, position, plain(site.callee), argument.slot, marked(site.names)])
    return found


def marked(names: dict[str, list[str]]) -> list[str]:
    """Of the names a launch rests on, those that may tell its backend."""
    return sorted({name for known in names.values() for name in known if any(mark in name for mark in PALLAS_MARKS)})


def closure_parameter(targets: tuple[Target, ...], reading: Reading, names: Names, by_qual: dict[str, int], calls: dict[int, list[tuple[Scope, str]]]) -> str:
    """`outer:kernel` where a target is a function nested in outer that calls outer's parameter `kernel`."""
    prefix = reading.module + "."
    for target in targets:
        qual = target.name.removeprefix(prefix)
        symbol = by_qual.get(qual, -1)
        if symbol <= 0 or reading.symbols[symbol].kind != FUNCTION or reading.symbols[symbol].parent <= 0 or not target.name.startswith(prefix):
            continue
        # What the launched function itself calls comes before what functions inside it call.
        inside = sorted((index for index in calls if index == symbol or reading.symbols[index].qual.startswith(qual + ".")), key=lambda i: (i != symbol, i))
        for index in inside:
            for scope, chain in calls[index]:
                function, parameter = names.parameter_of(scope, Value("name", chain))
                if function and function != qual and qual.startswith(function + "."):
                    return f"{function}:{parameter}"
    return ""


def facts_of(reading: Reading, names: Names, sites: list[Site], tunables: Tunables) -> dict[str, Any]:
    """References, sites, imports and gradients, each with where it stands; equal ones once."""
    table: dict[str, int] = {}

    def intern(name: str) -> int:
        return table.setdefault(name, len(table))

    references: dict[tuple[int, int, int, tuple[str, ...]], list[Any]] = {}
    unresolved = 0

    def add(symbol: int, type_: int, targets: tuple[Target, ...], line: int, role: int) -> None:
        key = (symbol, type_, line if type_ == 0 else 0, tuple(t.name for t in targets))
        known = references.get(key)
        if known is None:
            references[key] = [symbol, type_, line, role, [v for t in targets for v in (intern(t.name), HOW_RANK[t.how])]]

    module_symbols = {s.qual for s in reading.symbols}
    for scope, chain, line in reading.calls:
        targets = names.resolve(scope, chain)
        if targets:
            add(scope.symbol, 0, targets, line, 0)
        elif chain not in BUILTINS:
            unresolved += 1
    for scope, value, line, role in reading.roles:
        targets = names.value_targets(value, scope)
        if targets:
            add(scope.symbol, 1, targets, line, ROLES.index(role))
    prefix = reading.module + "."
    for scope in reading.scopes:
        for chain, line in scope.uses.items():
            targets = tuple(t for t in names.static(scope, chain) if keeps(t, prefix, module_symbols))
            if targets:
                add(scope.symbol, 1, targets, line, 0)
    vjps = []
    for scope, primal, forward, backward, line in reading.vjps:
        vjps.append([plain(names.resolve(scope, chain)) for chain in (primal, forward, backward)] + [line])
    return {
        "version": FACTS_VERSION,
        "module": reading.module,
        "quals": [s.qual for s in reading.symbols],
        "kinds": "".join(s.kind for s in reading.symbols),
        "parents": [s.parent for s in reading.symbols],
        "lines": [s.line_start for s in reading.symbols],
        "names": list(table),
        "references": list(references.values()),
        "imports": [[symbol, dotted, line] for symbol, dotted, line in dict.fromkeys(reading.imports)],
        "sites": [
            [
                s.symbol,
                plain(s.callee),
                s.callee_text,
                s.line,
                s.line_end,
                [[a.slot, plain(a.targets), list(a.via), a.text, a.parameter] for a in s.arguments],
                s.texts,
                s.names,
                s.form,
            ]
            for s in sites
        ],
        "vjps": vjps,
        "entries": entries_of(reading, names),
        "annotations": annotations_of(reading, names),
        "tunables": tunables,
        "flags": [list(flag) for flag in dict.fromkeys(reading.flags)],
        "catalogue": [],
        "unresolved": unresolved,
    }


ROLES = ("", "base", "decorator", "annotation")


def keeps(target: Target, prefix: str, module_symbols: set[str]) -> bool:
    """Whether a plain read is worth an edge: something defined, not the value of a local variable's call."""
    if target.name.endswith(")"):
        return False
    if target.name.startswith(prefix) and target.how == "inferred":
        return target.name[len(prefix) :] in module_symbols
    return True


def annotations_of(reading: Reading, names: Names) -> dict[str, list[str]]:
    """Per function the classes its parameters are annotated with: where a kernel's block sizes come from."""
    found: dict[str, list[str]] = {}
    scopes = {s.qual: s for s in reading.scopes if s.kind == FUNCTION}
    for qual, rows in reading.parameters.items():
        scope = scopes[qual]
        known = [t.name for *_, note in rows for t in names.value_targets(note, scope)]
        if known:
            found[qual] = list(dict.fromkeys(known))
    return found
