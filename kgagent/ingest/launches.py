"""Which calls launch a Pallas kernel, of what body, on which backend, tuned by what.

The backend comes from the resolved names a launch rests on (compiler parameters, mesh, memory spaces), then from those its
body and its module read; never from a file's name. Where they disagree or are silent it is unresolved.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from kgagent.ingest.modules import Module
from kgagent.ingest.resolve import Resolver, Symbol
from kgagent.ingest.shapes import CLASS, CONSTANT, EXTERNAL_ROOTS, FUNCTION, weakest

LAUNCH = re.compile(
    r"(?:jax\.experimental\.pallas(?:\.(?:tpu|tpu_sc|mosaic_gpu|triton|gpu))?|jax\._src\.pallas(?:\.(?:mosaic|mosaic_gpu|triton))?\.\w+)"
    r"\.(?:pallas_call|kernel|core_map|emit_pipeline(?:_with_\w+|_warp_specialized)?)\Z"
)
BACKENDS = (
    ("mosaic_gpu", ("jax.experimental.pallas.mosaic_gpu", "jax._src.pallas.mosaic_gpu", "jax.experimental.mosaic.gpu")),
    ("mosaic_tpu", ("jax.experimental.pallas.tpu", "jax.experimental.pallas.tpu_sc", "jax._src.pallas.mosaic")),
    ("triton", ("jax.experimental.pallas.triton", "jax._src.pallas.triton")),
)
BODY_SLOTS = (0, "kernel", "body", "f", "fn", "func", "fun", "kernel_fn")
ARRANGING = ("compiler_params", "mesh", "grid_spec", "scratch_shapes", "scratch_types", "in_specs", "out_specs")
MAX_WRAPPING = 6
TEST_PATH = re.compile(r"(?:^|/)(?:tests?/|test_[^/]*\.py\Z|[^/]*_test\.py\Z|conftest\.py\Z)")


@dataclass(slots=True)
class Launch:
    """A launch, ready to be written."""

    name: str
    api: str
    backend: str
    backend_how: str
    line: int
    line_end: int
    wrapper: int  # symbol index of the outermost function around it; -1 at module level
    inner: int  # symbol index of the innermost one
    bodies: list[tuple[str, str]]  # symbol id, how
    body_how: str
    body_text: str
    grid: str
    data: dict[str, Any] = field(default_factory=dict)
    knobs: list[str] = field(default_factory=list)  # knob ids


@dataclass(slots=True)
class Launcher:
    """A project function that launches what it is given."""

    parameter: str
    position: int
    names: tuple[str, ...]  # what its own launch rests on
    api: str


class Launches:
    """Finds the launches among a file's sites."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self._launchers: dict[str, tuple[Launcher | None, frozenset[str]]] = {}

    def of_file(self, facts: dict[str, Any], module: Module, path: str) -> list[Launch]:
        """The file's launches in line order, named apart."""
        found: list[Launch] = []
        for site in facts["sites"]:
            launch = self._launch(site, facts, module)
            if launch is not None:
                launch.data["test"] = bool(TEST_PATH.search(path))
                found.append(launch)
        found.sort(key=lambda launch: (launch.line, launch.api))
        counts: dict[str, int] = {}
        for launch in found:
            counts[launch.name] = counts.get(launch.name, 0) + 1
            if counts[launch.name] > 1:
                launch.name = f"{launch.name}~{counts[launch.name]}"
        return found

    def _launch(self, site: list[Any], facts: dict[str, Any], module: Module) -> Launch | None:
        symbol, callee, callee_text, line, line_end, arguments, texts, rests, form = site
        api, launcher = self.api_of(callee)
        if not api:
            if callee or not callee_text.endswith("pallas_call"):
                return None
            api = callee_text
        body = self.body_argument(arguments, launcher)
        if launcher is not None:
            if body is None and "decorator" not in form:
                return None
            form = "wrapper"
        outer = outermost(symbol, facts)
        around = [facts["quals"][symbol]] if symbol else []
        while symbol and facts["parents"][symbol] > 0:
            symbol = facts["parents"][symbol]
            around.append(facts["quals"][symbol])
        bodies, body_how = self.bodies(body)
        backend, backend_how = self.backend(api, rests, texts, launcher, bodies, around, module)
        text = body[3] if body is not None else ""
        data: dict[str, Any] = {"form": form, "api_text": callee_text}
        if body is not None:
            data["via"] = body[2]
            if body[4]:
                data["body_parameter"] = body[4].partition(":")[2]
        if texts:
            data["arguments"] = {key: value for key, value in texts.items() if key != "block_specs"}
            if "block_specs" in texts:
                data["block_specs"] = texts["block_specs"].split("\n")
        name = self.name_of(bodies, body, facts, site[0], outer)
        launch = Launch(
            name, api, backend, backend_how, line, line_end, outer, site[0] or -1, [(b.id, b.how) for b in bodies], body_how, text,
            texts.get("grid") or texts.get("grid_spec", ""), data,
        )  # fmt: skip
        if len(bodies) == 1 and bodies[0].module is module and bodies[0].qual in facts.get("sketches", {}):
            launch.data["sketch"] = facts["sketches"][bodies[0].qual]
        launch.knobs = self.knobs(around, bodies, facts, module)
        return launch

    def name_of(self, bodies: tuple[Symbol, ...], body: list[Any] | None, facts: dict[str, Any], symbol: int, outer: int) -> str:
        if len(bodies) == 1 and body is not None:
            return bodies[0].name.rsplit(".", 1)[-1]
        if outer >= 0:
            return str(facts["quals"][symbol if symbol else outer]).rsplit(".", 1)[-1]
        return "launch"

    # what is launched

    def api_of(self, callee: list[list[str]], depth: int = 0) -> tuple[str, Launcher | None]:
        """(dotted name of the launching function, the project wrapper it is, if it is one)."""
        for name, _ in callee:
            if LAUNCH.match(name):
                return name, None
            for symbol in self.resolver.resolve(name):
                if LAUNCH.match(symbol.name):
                    return symbol.name, None
                if symbol.kind == CONSTANT and symbol.module is not None and depth < MAX_WRAPPING:  # `call = partial(pl.pallas_call, …)`
                    _, targets = self.resolver.modules.surface(symbol.module).get("v", {}).get(symbol.qual, (False, []))
                    found = self.api_of(targets, depth + 1)
                    if found[0]:
                        return found
                launcher = self.launcher(symbol)
                if launcher is not None:
                    return symbol.name, launcher
        return "", None

    def launcher(self, symbol: Symbol, depth: int = 0) -> Launcher | None:
        """The wrapper a function is: one of its parameters ends as the body of a launch."""
        if symbol.module is None or symbol.kind != FUNCTION or depth > MAX_WRAPPING:
            return None
        known = self._launchers.get(symbol.id)
        if known is not None:
            self.resolver.consulted |= known[1]
            return known[0]
        if depth == 0:
            outer, self.resolver.consulted = self.resolver.consulted, set()
        found = self._launcher(symbol, depth)
        if depth == 0:
            mine = frozenset(self.resolver.consulted)
            self.resolver.consulted = outer | mine
            self._launchers[symbol.id] = (found, mine)
        return found

    def _launcher(self, symbol: Symbol, depth: int) -> Launcher | None:
        assert symbol.module is not None
        for parameter, position, callee, slot, names in self.resolver.modules.surface(symbol.module).get("w", {}).get(symbol.qual, ()):
            for name, _ in callee:
                if LAUNCH.match(name) and slot in BODY_SLOTS:
                    return Launcher(parameter, position, tuple(names), name)
                for inner in self.resolver.resolve(name):
                    if LAUNCH.match(inner.name) and slot in BODY_SLOTS:
                        return Launcher(parameter, position, tuple(names), inner.name)
                    if inner.id != symbol.id:
                        further = self.launcher(inner, depth + 1)
                        if further is not None and slot in (further.parameter, further.position):
                            return Launcher(parameter, position, (*names, *further.names), further.api)
        return None

    def body_argument(self, arguments: list[list[Any]], launcher: Launcher | None) -> list[Any] | None:
        slots = BODY_SLOTS if launcher is None else (launcher.parameter, launcher.position)
        return next((argument for argument in arguments if argument[0] in slots), None)

    def bodies(self, body: list[Any] | None) -> tuple[tuple[Symbol, ...], str]:
        """The functions a body may be, and how sure that is."""
        if body is None or body[4]:  # a parameter's default is not what callers pass
            return (), "unresolved"
        found: dict[str, Symbol] = {}
        for name, how in body[1]:
            for symbol in self.resolver.resolve(name):
                if symbol.kind in (FUNCTION, CLASS) or (symbol.module is None and symbol.how != "unresolved"):
                    found.setdefault(symbol.id, symbol._replace(how=weakest(symbol.how, how)))
        if not found:
            return (), "unresolved"
        symbols = tuple(found.values())
        if len(symbols) > 1:
            return tuple(s._replace(how="candidate") for s in symbols), "candidate"
        return symbols, symbols[0].how

    # where it runs

    def backend(
        self, api: str, rests: dict[str, list[str]], texts: dict[str, str], launcher: Launcher | None,
        bodies: tuple[Symbol, ...], around: list[str], module: Module,
    ) -> tuple[str, str]:  # fmt: skip
        """(backend, how): the launching function itself, what the launch is given, its wrapper, its body, its module."""
        if texts.get("interpret") == "True":
            return "interpret", "exact"
        for names, how in (
            ([api], "exact"),
            ([name for key in ARRANGING for name in rests.get(key, ())], "exact"),
            (list(launcher.names) if launcher is not None else [], "inferred"),
            ([launcher.api] if launcher is not None else [], "inferred"),
            (self.reads(bodies), "inferred"),
            (self.module_reads(module, lambda qual: any(qual == a or qual.startswith(a + ".") for a in around)), "inferred"),
            (self.module_reads(module, lambda qual: True), "inferred"),
        ):
            backends = self.backends_of(names)
            if len(backends) == 1:
                return backends.pop(), how
            if backends:
                return "unresolved", "unresolved"
        return "unresolved", "unresolved"

    def backends_of(self, names: list[str]) -> set[str]:
        found = set()
        for name in dict.fromkeys(names):
            backend = backend_of(name)
            if not backend and not name.startswith(EXTERNAL_ROOTS):
                for symbol in self.resolver.resolve(name.partition(".()")[0]):
                    backend = backend_of(symbol.name)
            if backend:
                found.add(backend)
        return found

    def reads(self, bodies: tuple[Symbol, ...]) -> list[str]:
        found: list[str] = []
        for body in bodies:
            if body.module is not None:
                found += self.module_reads(body.module, lambda qual, body=body: qual == body.qual or qual.startswith(body.qual + "."))
        return found

    def module_reads(self, module: Module, wanted: Any) -> list[str]:
        reads = self.resolver.modules.surface(module).get("p", {})
        return [name for qual, names in reads.items() if wanted(qual) for name in names]

    # what tunes it

    def knobs(self, around: list[str], bodies: tuple[Symbol, ...], facts: dict[str, Any], module: Module) -> list[str]:
        """Block-size parameters of the functions around the launch, and block-size fields of the classes they are given."""
        surface = self.resolver.modules.surface(module)
        found: dict[str, None] = {}
        classes = [name for qual in around for name in facts["annotations"].get(qual, ())]
        for qual in around:
            for name in surface.get("t", {}).get(qual, ()):
                found.setdefault(f"knob:{module.name}.{qual}.{name}{module.suffix}")
        for body in bodies:
            if body.module is not None:
                classes += self.resolver.modules.surface(body.module).get("n", {}).get(body.qual, ())
        for name in dict.fromkeys(classes):
            for symbol in self.resolver.resolve(name):
                if symbol.kind != CLASS:
                    continue
                for each in self.resolver.mro(symbol):
                    assert each.module is not None
                    for field_name in self.resolver.modules.surface(each.module).get("t", {}).get(each.qual, ()):
                        found.setdefault(f"knob:{each.module.name}.{each.qual}.{field_name}{each.module.suffix}")
        return list(found)


def backend_of(name: str) -> str:
    for backend, prefixes in BACKENDS:
        for prefix in prefixes:
            if name == prefix or name.startswith(prefix + "."):
                return backend
    return ""


def outermost(symbol: int, facts: dict[str, Any]) -> int:
    """The outermost function (or method) around a symbol; -1 where there is none."""
    found = -1
    while symbol > 0:
        if facts["kinds"][symbol] == FUNCTION:
            found = symbol
        symbol = facts["parents"][symbol]
    return found
