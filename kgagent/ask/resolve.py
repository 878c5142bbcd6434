"""From words to what they name: kernels, concepts and the lane's levers, the one meant first, ties said.

Words are matched whole against ids, names and aliases; what the current lane uses wins over what merely sounds alike,
a Mosaic TPU kernel over other backends, forward over backward.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field

from kgagent.ask.question import Question, tokens, vocabulary
from kgagent.ask.records import Here
from kgagent.ask.trail import Step, steps
from kgagent.ask.wording import plain_value
from kgagent.graph import Edge, Graph, Node, find
from kgagent.graph.store import NODE_COLUMNS, node_of

NAMED = ("concept", "kernel", "lever")  # few enough to be read whole
REACH_HOPS = 10
REACH_NODES = 3000
MAX_KERNELS = 3
ANY = "*"  # a lever of every value of its knob


@dataclass(frozen=True, slots=True)
class Lever:
    """A value of a lane's knob; `path` is how the question's subject leads to it, empty when the words name it."""

    node: Node
    knob: str
    value: str
    path: tuple[Edge, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A kernel or concept with the edges that lead to it from the lever or subject; none when the words name it."""

    node: Node
    path: tuple[Edge, ...] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """What a question is about."""

    node: Node
    label: str  # as the question calls it
    kernels: tuple[Link, ...]
    concepts: tuple[Link, ...]
    levers: tuple[Lever, ...]
    also: tuple[Node, ...]
    unmatched: tuple[str, ...]


@dataclass(slots=True)
class _Named:
    """Every concept, kernel and lever with its words; read once a question."""

    nodes: dict[str, list[tuple[Node, frozenset[str]]]] = field(default_factory=dict)

    def matching(self, kind: str, terms: Sequence[str]) -> list[tuple[int, Node]]:
        """(how many terms it has, node) for those that have any."""
        found = []
        for node, bag in self.nodes[kind]:
            count = sum(1 for term in terms if term in bag or _stem(term) in bag)
            if count:
                found.append((count, node))
        return found


def _stem(word: str) -> str:
    """`kernels` also asks for `kernel`."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _aliases(node: Node) -> list[str]:
    aliases = node.data.get("aliases", [])
    return [str(alias) for alias in aliases] if isinstance(aliases, list) else []


def _read(graph: Graph) -> _Named:
    named = _Named({kind: [] for kind in NAMED})
    for row in graph.rows(f"SELECT {NODE_COLUMNS} FROM node n WHERE n.kind IN ('concept', 'kernel', 'lever') ORDER BY n.key"):
        node = node_of(row)
        named.nodes[node.kind].append((node, frozenset(tokens(" ".join([node.id, node.name, *_aliases(node)])))))
    return named


def lever_of(node: Node) -> tuple[str, str, str] | None:
    """(lane, knob, value) of `lever:LANE/knob=value`, value `*` for any; None for a lever that concept pages describe."""
    lane, slash, setting = node.id.removeprefix("lever:").partition("/")
    knob, _, value = setting.partition("=")
    if not slash:
        return None
    return lane, str(node.data.get("knob", knob)), plain_value(node.data.get("value", value)) or ANY


def resolve(graph: Graph, asked: Question, here: Here) -> Subject | None:
    """The subject, or None when the words fit nothing well enough."""
    named = _read(graph)
    terms = list(asked.terms)
    direct = [node for node in (graph.node(id_) for id_ in asked.ids) if node is not None]
    if direct:
        return _around(graph, direct[0], direct[0].name, here, named, (), ())
    if not terms:
        return None  # an id that no node has
    unmatched = tuple(term for term in terms if not any(named.matching(kind, [term]) for kind in NAMED))
    matches = {kind: named.matching(kind, terms) for kind in NAMED}
    best = max((count for found in matches.values() for count, _ in found), default=0)
    label = " ".join(terms)
    top = {kind: [node for count, node in found if count == best] for kind, found in matches.items()}
    levers, by_value = _here_levers(top["lever"], terms, here)
    chosen = [] if by_value else _choices(here, terms)
    if best * 2 <= len(terms) and not chosen:
        return _by_symbol(graph, terms, here, named)
    if chosen:
        levers, by_value = chosen, True
    kernels = _kernels(graph, top["kernel"], levers, here)
    concepts, whole = _concepts(top["concept"], terms)
    if by_value and not whole:
        concepts = []  # a lever's value says more than one word of a concept's name; its own concepts come along edges
    elif not by_value and (kernels or concepts):
        levers = []  # a knob's name alone says less than a kernel's or a concept's
    if kernels:
        node, ties = kernels[0], kernels[1:]
    elif concepts and not levers:
        node, ties = concepts[0], concepts[1:]
    elif levers:
        node, ties = levers[0].node, [lever.node for lever in levers[1:]]
    elif top["lever"]:
        node, ties = top["lever"][0], top["lever"][1:]
    else:
        return _by_symbol(graph, terms, here, named)
    direct_hits: Direct = (tuple(kernels[:1]), tuple(concepts[:1]), tuple(levers))
    return _around(graph, node, label, here, named, direct_hits, (*ties, *(concept for concept in concepts[1:] if concept not in ties)), unmatched)


def _by_symbol(graph: Graph, terms: Sequence[str], here: Here, named: _Named) -> Subject | None:
    """A symbol, knob, flag or experiment whose own name has all the words."""
    if not any(len(term) > 1 and not term.isdigit() for term in terms):
        return None  # a digit is a part of too many names to mean one
    for hit in find(graph, " ".join(terms), limit=10):
        if hit.why in ("id", "name") and hit.node.kind not in ("op", "line", "file", "measurement", "verdict", "claim"):
            return _around(graph, hit.node, " ".join(terms), here, named, (), ())
    return None


def _here_levers(nodes: Sequence[Node], terms: Sequence[str], here: Here) -> tuple[list[Lever], bool]:
    """Levers of the current lane whose value the words spell (True), else whose knob they do."""
    if here.lane is None:
        return [], False
    lane = here.lane.id.removeprefix("lane:")
    settings = [(node, setting) for node in nodes if (setting := lever_of(node)) is not None and setting[0] == lane]
    by_value = [Lever(node, knob, value) for node, (_, knob, value) in settings if set(tokens(value)) & set(terms)]
    by_knob = [Lever(node, knob, value) for node, (_, knob, value) in settings if set(tokens(knob)) & set(terms)]
    return by_value or by_knob, bool(by_value)


def _choices(here: Here, terms: Sequence[str]) -> list[Lever]:
    """Values of the lane's knobs that all the words spell; a default has no lever of its own, so the lane stands for it."""
    knobs = here.lane.data.get("knobs") if here.lane is not None else None
    if here.lane is None or not isinstance(knobs, dict):
        return []
    values = [(str(knob), plain_value(choice)) for knob, said in knobs.items() for choice in said.get("choices", [])]
    return [Lever(here.lane, knob, value) for knob, value in values if set(terms) <= set(tokens(value)) or set(terms) == set(tokens(f"{knob} {value}"))]


def _concepts(nodes: Sequence[Node], terms: Sequence[str]) -> tuple[list[Node], bool]:
    """Those that have the words as a whole name or alias (True), else all, shorter names first."""
    phrase = set(terms)

    def order(node: Node) -> tuple[bool, int, str]:
        names = [node.id.removeprefix("concept:"), node.name, *_aliases(node)]
        return not any(set(tokens(name)) == phrase for name in names), len(tokens(node.name)), node.id

    ranked = sorted(nodes, key=order)
    exact = [node for node in ranked if not order(node)[0]]
    return exact or ranked, bool(exact)


def _kernels(graph: Graph, nodes: Sequence[Node], levers: Sequence[Lever], here: Here) -> list[Node]:
    """The kernel meant, then those whose names fit as well; empty when none is meant."""
    if not nodes:
        return []
    reached = reach(graph, [lever.node.key for lever in levers])
    backends = dict(graph.rows("SELECT key, backend FROM kernel"))
    words = vocabulary()
    lane_words = set(tokens(here.lane.name)) if here.lane else set()

    def order(node: Node) -> tuple[bool, bool, bool, bool, bool]:
        bag = set(tokens(node.id))
        return (
            node.key not in reached,
            bool(bag & words.side),
            not bag & lane_words,
            backends.get(node.key) != "mosaic_tpu",
            bool(set(tokens(node.id.rsplit("/", 1)[-1])) & words.backward),
        )

    ranked = sorted(nodes, key=lambda node: (*order(node), node.id))
    best = order(ranked[0])
    if levers and best[0] and best[2]:
        return []  # the lane has a lever of that name and these kernels have nothing to do with the lane
    return [node for node in ranked if order(node)[1:] == best[1:]]


def reach(graph: Graph, starts: Sequence[int]) -> dict[int, tuple[Edge, ...]]:
    """Kernels that levers or symbols lead to through calls, with the path to each; bounded, nearest first."""
    came: dict[int, Step] = {}
    found: dict[int, tuple[Edge, ...]] = {}
    seen = set(starts)
    frontier = list(starts)
    ids = {}
    for _ in range(REACH_HOPS):
        following = []
        for step in steps(graph, frontier, ("uses", "calls", "wraps")):
            node = step.node
            ids[node.id] = node.key
            if node.key in seen or len(seen) > REACH_NODES or step.edge.how in ("candidate", "unresolved"):
                continue
            seen.add(node.key)
            came[node.key] = step
            if node.kind == "kernel":
                found[node.key] = _path(came, node.key, ids)
            elif node.kind == "symbol":
                following.append(node.key)
        frontier = following
        if not frontier:
            break
    return found


def _path(came: dict[int, Step], key: int, ids: dict[str, int]) -> tuple[Edge, ...]:
    """The edges from a start to a node, in order."""
    edges: list[Edge] = []
    here: int | None = key
    while here in came:
        edge = came[here].edge
        edges.append(edge)
        here = ids.get(edge.src)
    return tuple(reversed(edges))


Direct = tuple[tuple[Node, ...], tuple[Node, ...], tuple[Lever, ...]]


def _around(
    graph: Graph, node: Node, label: str, here: Here, named: _Named, direct: Direct | tuple[()], also: tuple[Node, ...], unmatched: tuple[str, ...] = ()
) -> Subject:
    """Complete a subject along edges: its kernels, concepts and the lane's levers, whichever the words didn't name."""
    kernels, concepts, levers = direct if direct else ((), (), ())
    if node.kind == "kernel":
        kernels = kernels or (node,)
    elif node.kind == "concept":
        concepts = concepts or (node,)
    elif node.kind == "lever" and not levers and (setting := lever_of(node)) is not None:
        levers = (Lever(node, setting[1], setting[2]),)
    levers = levers or _levers_by_edges(graph, kernels, concepts, here, named)
    starts = [lever.node.key for lever in levers] or ([node.key] if node.kind == "symbol" else [])
    reached = reach(graph, starts)
    kernel_links = [Link(kernel, reached.get(kernel.key, ())) for kernel in kernels]
    if not kernel_links:
        by_key = {kernel.key: kernel for kernel, _ in named.nodes["kernel"]}
        kernel_links = [Link(by_key[key], path) for key, path in reached.items() if key in by_key]
        if not kernel_links and node.kind == "concept":
            kernel_links = _kernels_of_concept(graph, node)
    concept_links = [Link(concept) for concept in concepts]
    known = {link.node.key for link in concept_links}
    for step in steps(graph, [lever.node.key for lever in levers if not lever.path], ("tests_concept",), kind="concept"):
        if step.node.key not in known:
            known.add(step.node.key)
            concept_links.append(Link(step.node, (step.edge,)))
    return Subject(node, label, tuple(kernel_links[:MAX_KERNELS]), tuple(concept_links), levers, also, unmatched)


def _levers_by_edges(graph: Graph, kernels: Sequence[Node], concepts: Sequence[Node], here: Here, named: _Named) -> tuple[Lever, ...]:
    """Levers of the lane that test the concept, or whose symbol leads to the kernel."""
    if here.lane is None:
        return ()
    lane = here.lane.id.removeprefix("lane:")
    of_lane = {node.key: (node, setting) for node, _ in named.nodes["lever"] if (setting := lever_of(node)) is not None and setting[0] == lane}
    found: dict[int, Lever] = {}
    for step in steps(graph, [concept.key for concept in concepts], ("tests_concept",), back=True, kind="lever"):
        if step.node.key in of_lane:
            node, (_, knob, value) = of_lane[step.node.key]
            found.setdefault(node.key, Lever(node, knob, value, (step.edge,)))
    if kernels:
        for key, (node, (_, knob, value)) in of_lane.items():
            paths = reach(graph, [key])
            for kernel in kernels:
                if kernel.key in paths:
                    found.setdefault(key, Lever(node, knob, value, paths[kernel.key]))
    return tuple(found.values())


def _kernels_of_concept(graph: Graph, concept: Node) -> list[Link]:
    """Kernels that mention a concept themselves or through body or wrapper, Mosaic TPU first."""
    backends = dict(graph.rows("SELECT key, backend FROM kernel"))
    words = vocabulary()
    links: dict[int, Link] = {}
    mentions = steps(graph, [concept.key], ("mentions",), back=True)
    for step in mentions:
        if step.node.kind == "kernel":
            links.setdefault(step.node.key, Link(step.node, (step.edge,)))
    paths: dict[str, tuple[Edge, ...]] = {step.node.id: (step.edge,) for step in mentions if step.node.kind == "symbol"}
    level = [step.node.key for step in mentions if step.node.kind == "symbol"]
    for _ in range(3):  # a mention may stand in a function nested in the body
        for step in steps(graph, level, ("implements", "wraps"), kind="kernel"):
            links.setdefault(step.node.key, Link(step.node, (*paths[step.edge.src], step.edge)))
        around = [step for step in steps(graph, level, ("defines",), back=True, kind="symbol") if step.node.id not in paths]
        paths |= {step.node.id: (*paths[step.edge.dst], step.edge) for step in around}
        level = [step.node.key for step in around]

    def order(link: Link) -> tuple[bool, bool, bool, str]:
        bag = set(tokens(link.node.id))
        return backends.get(link.node.key) != "mosaic_tpu", bool(bag & words.side), bool(bag & words.backward), link.node.id

    return sorted(links.values(), key=order)


def nearest(graph: Graph, terms: Sequence[str], limit: int = 5) -> tuple[Node, ...]:
    """What the words may have meant: near spellings among names, then whatever the text search finds."""
    named = _read(graph)
    entries = [(node, bag) for kind in NAMED for node, bag in named.nodes[kind]]
    spellings = {word for _, bag in entries for word in bag}
    found: dict[int, Node] = {}
    for term in terms:
        close = set(difflib.get_close_matches(term, spellings, n=3, cutoff=0.72))
        for node, bag in sorted(entries, key=lambda entry: (NAMED.index(entry[0].kind), len(entry[0].id))):
            if close & bag and len(found) < limit:
                found.setdefault(node.key, node)
    for term in terms:
        for hit in find(graph, term, limit=limit):
            if len(found) < limit and hit.node.kind not in ("op", "line"):
                found.setdefault(hit.node.key, hit.node)
    return tuple(found.values())
