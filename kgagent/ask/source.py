"""Findings from source and pages: the kernel and its spans, the mechanisms its code shows, conditions, claims, tunables."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass

from kgagent.ask.context import Context
from kgagent.ask.records import Finding
from kgagent.ask.trail import Step, steps
from kgagent.ask.wording import clipped, counted, first_sentence, listed, plain_value
from kgagent.graph import Edge, Node

SHOWN_MECHANISMS = 6
SHOWN_STATED = 3
SHOWN_CONDITIONS = 5
SHOWN_LINES = 4  # citations of one mechanism
SHOWN_KNOBS = 16
SHOWN_CLAIMS = 3
BACKENDS = {"mosaic_tpu": "Mosaic TPU", "mosaic_gpu": "Mosaic GPU", "triton": "Triton"}
CONDITIONS = {"requires": "needs", "conflicts_with": "conflicts with", "enables": "enables"}


def kernels(context: Context) -> list[Finding]:
    """Each kernel with launch, wrapper and body; a kernel nothing is tied to is unknown, not a finding."""
    found: list[Finding] = []
    for link in context.subject.kernels:
        kernel = link.node
        ties = steps(context.graph, [kernel.key], ("wraps", "implements"), back=True, kind="symbol")
        wrappers = [step for step in ties if step.edge.type == "wraps"]
        bodies = [step for step in ties if step.edge.type == "implements"]
        if not ties:
            context.unknown.append(f"wrapper and body of {kernel.id}: its launch is not tied to either")
            continue
        ground = context.ground().about(kernel).rest(*link.path, *(step.edge for step in ties))
        row = context.graph.rows(
            """SELECT k.api, k.backend, k.launch_line, k.grid, k.body_how, s.root || '/' || f.path
               FROM kernel k LEFT JOIN file f ON f.key = k.launch_file LEFT JOIN source s ON s.key = f.source WHERE k.key = ?""",
            kernel.key,
        )
        parts = [f"{kernel.id}"]
        if row:
            api, backend, line, grid, body_how, path = row[0]
            name = BACKENDS.get(backend, backend)
            parts[0] += f" is a {name} kernel launched through {api}" + (f", grid `{clipped(grid, 80)}`" if grid else "")
            ground.cite(path, line, max(line, kernel.line_end or line) if path == kernel.path else line, kernel.id, "launch")
        if wrappers:
            parts.append("wrapped by " + listed([f"`{step.node.name}`" for step in wrappers]))
        if bodies:
            how = f" ({body_how})" if row and body_how not in ("exact", "") else ""
            parts.append("body " + listed([f"`{step.node.name}`{_span(step.node)}" for step in bodies]) + how)
        for step in wrappers:
            ground.cite_node(step.node, "wrapper")
        for step in bodies:
            ground.cite_node(step.node, "body")
        if link.path and link.path[0].src.startswith("lever:"):
            parts.append(f"reached here from {link.path[0].src} in {counted(len(link.path), 'step')}")
        found.extend(ground.finding("kernel", "; ".join(parts) + ".", "source"))
    if not context.subject.kernels:
        found.extend(_functions(context))
    if not context.subject.kernels and context.subject.node.kind in ("concept", "lever"):
        context.unknown.append(f"a Pallas kernel for {context.label}: none is linked to it")
    return found


def _functions(context: Context) -> list[Finding]:
    """The functions the lane's levers run, or the symbol asked about, where no kernel is meant."""
    used = steps(context.graph, [lever.node.key for lever in context.subject.levers], ("uses",), kind="symbol")
    if context.subject.node.kind in ("symbol", "knob", "flag"):
        used = [Step(step.edge, context.subject.node) for step in steps(context.graph, [context.subject.node.key], ("defines",), back=True)] or used
    found: list[Finding] = []
    for step in used:
        verb = "defines" if step.edge.type == "defines" else "uses"
        text = f"{step.edge.src} {verb} `{step.node.name}`{_span(step.node)}."
        found.extend(context.ground().about(step.node).rest(step.edge).cite_node(step.node).finding("code", text, "source"))
    return found


def _span(node: Node) -> str:
    return f" ({node.line_end - node.line_start + 1} lines)" if node.line_start and node.line_end else ""


def mechanisms(context: Context) -> list[Finding]:
    """Concepts the kernel's code mentions, most often seen first, each with its mechanism in a line and the lines it shows in."""
    own = [link.node.key for link in context.subject.concepts]
    code = _code(context)
    seen: dict[int, list[Step]] = defaultdict(list)
    for step in steps(context.graph, [tied.key for tied in code.values()], ("mentions",), kind="concept"):
        seen[step.node.key].append(step)
    found: list[Finding] = []
    ranked = sorted(seen.values(), key=lambda group: _weight(group, own))
    for mentions in ranked[:SHOWN_MECHANISMS]:
        concept = mentions[0].node
        ground = context.ground().about(concept, *(link.node for link in context.subject.kernels[:1]))
        for step in mentions:
            ground.rest(step.edge, *code[step.edge.src].path)
        for step in sorted(mentions, key=lambda step: step.edge.data.get("kind", "source") != "source")[:SHOWN_LINES]:
            ground.cite(step.edge.path, step.edge.line, step.edge.line, step.edge.src, _seen(step.edge))
        names = dict.fromkeys(code[step.edge.src].name for step in mentions)
        whose = f" of {_short(context.subject.kernels[0].node)}" if context.subject.kernels else ""
        seen_in = f"Seen on {counted(len(mentions), 'line')}, in {listed([f'`{name}`' for name in names][:4])}{whose}."
        text = f"{concept.name}: {mechanism(concept)} {seen_in}"
        found.extend(ground.finding("mechanism", text, "detected"))
    found.extend(_further(context, ranked[SHOWN_MECHANISMS:], code))
    found.extend(_stated(context, set(seen)))
    if not found:
        context.unknown.append(f"the mechanism: no concept is linked to the code of {context.label}")
    return found


def _short(kernel: Node) -> str:
    """`jax's splash_attention_kernel/flash_attention_kernel`: package and module tell kernels of one name apart."""
    parts = kernel.id.removeprefix("kernel:").split("/")
    return f"{parts[0]}'s {'/'.join(parts[-2:])}"


def _weight(mentions: list[Step], own: list[int]) -> tuple[int, int, int, str]:
    """Concepts of the subject and its lever first, then those that source text shows on most lines; a parameter's name is weak evidence."""
    key = mentions[0].node.key
    shown = sum(1 for step in mentions if step.edge.data.get("kind", "source") == "source")
    return own.index(key) if key in own else len(own), -shown, -len(mentions), mentions[0].node.id


def _further(context: Context, groups: list[list[Step]], code: dict[str, _Tied]) -> list[Finding]:
    """Concepts seen in the code beyond those told one by one."""
    ground = context.ground()
    for mentions in groups:
        for step in mentions:
            ground.rest(step.edge, *code[step.edge.src].path)
    names = [f"{mentions[0].node.name} ({counted(len(mentions), 'line')})" for mentions in groups]
    whose = _short(context.subject.kernels[0].node) if context.subject.kernels else context.label
    return ground.finding("mechanism", f"also seen in the code of {whose}: {listed(names)}.", "detected")


@dataclass(frozen=True, slots=True)
class _Tied:
    """A piece of the subject's code and the edges that tie it to the kernel or lever."""

    key: int
    name: str
    path: tuple[Edge, ...]


def _code(context: Context) -> dict[str, _Tied]:
    """The first kernel with wrapper and body, what is nested in them and what the body calls; without a kernel what the levers use."""
    graph = context.graph
    found: dict[str, _Tied] = {}

    def tie(step: Step) -> None:
        if step.node.id not in found:
            source = step.edge.src if step.node.id == step.edge.dst else step.edge.dst
            before = found[source].path if source in found else ()
            found[step.node.id] = _Tied(step.node.key, step.node.name, (*before, step.edge))

    if not context.subject.kernels:
        for step in steps(graph, [lever.node.key for lever in context.subject.levers], ("uses",), kind="symbol"):
            tie(step)
        if context.subject.node.kind == "symbol":
            found[context.subject.node.id] = _Tied(context.subject.node.key, context.subject.node.name, ())
    else:
        kernel = context.subject.kernels[0].node
        found[kernel.id] = _Tied(kernel.key, kernel.name, ())
        ties = steps(graph, [kernel.key], ("implements", "wraps"), back=True, kind="symbol")
        for step in ties:
            tie(step)
        for step in steps(graph, [step.node.key for step in ties if step.edge.type == "implements"], ("calls",), kind="symbol"):
            tie(step)
    for _ in range(2):  # functions nested in functions
        for step in steps(graph, [tied.key for tied in found.values()], ("defines",), kind="symbol"):
            tie(step)
    return found


def _seen(edge: Edge) -> str:
    """What the detector saw on the line."""
    return clipped(str(edge.data.get("text") or edge.data.get("detector") or ""), 100)


def mechanism(concept: Node) -> str:
    """Why a concept makes things faster or slower, in one sentence of its page; its definition where the page has no such sentence."""
    texts = (concept.data.get("summary"), concept.doc, concept.data.get("mechanism"))
    sentence = next((sentence for text in texts if text and (sentence := first_sentence(str(text)))), "its page gives no mechanism")
    return sentence if sentence.endswith((".", "!", "?", "…")) else sentence + "."


def _stated(context: Context, seen: set[int]) -> list[Finding]:
    """Concepts tied to the subject by its lever or its own kernels, where no detector saw them in the code shown."""
    found: list[Finding] = []
    for link in [link for link in context.subject.concepts if link.node.key not in seen][:SHOWN_STATED]:
        ground = context.ground().about(link.node).rest(*link.path).cite_node(link.node)
        tested = steps(context.graph, [link.node.key], ("tests_concept",), back=True, kind="lever")
        ground.rest(*(step.edge for step in tested))
        mentions = [step for step in steps(context.graph, [link.node.key], ("mentions",), back=True) if step.node.kind != "concept"]
        mentions.sort(key=lambda step: (step.edge.data.get("kind", "source") != "source", step.edge.key))
        # where the lever leads to the concept the finding stands on that; else every mention carries it
        ground.rest(*(step.edge for step in (mentions[:SHOWN_LINES] if link.path else mentions)))
        for step in mentions[:SHOWN_LINES]:
            ground.cite(step.edge.path, step.edge.line, step.edge.line, step.edge.src, _seen(step.edge))
        parts = [f"tested here by {listed([step.node.id for step in tested[:4]])}"] if tested else []
        if mentions:
            parts.append(f"seen in {counted(len({step.edge.src for step in mentions}), 'symbol')} of the ingested source")
        elif tested:
            parts.append("seen in no ingested source")
        text = f"{link.node.name}: {mechanism(link.node)} {'; '.join(parts).capitalize()}."
        found.extend(ground.finding("mechanism", text, "stated"))
    return found


def conditions(context: Context) -> list[Finding]:
    """What the subject's levers and concepts need, rule out and make possible, with the scope each holds in."""
    subject = context.subject
    keys = [lever.node.key for lever in subject.levers] + [link.node.key for link in subject.concepts]
    offered = steps(context.graph, [link.node.key for link in subject.concepts], ("enables",), kind="lever")
    mine = {*keys, *(step.node.key for step in offered), subject.node.key}
    first = {link.node.id for link in subject.concepts[:1]}
    near = {lever.node.id for lever in subject.levers} | first | {step.node.id for step in offered if step.edge.src in first}
    out = steps(context.graph, mine, tuple(CONDITIONS))
    into = steps(context.graph, mine, ("requires", "conflicts_with"), back=True)
    found: list[Finding] = []
    for type_, verb in CONDITIONS.items():
        edges: dict[int, Edge] = {step.edge.key: step.edge for step in (*out, *into) if step.edge.type == type_}
        if not edges:
            continue
        ranked = sorted(edges.values(), key=lambda edge: (edge.src not in near and edge.dst not in near, edge.key))
        parts = [f"{edge.src} {verb} {edge.dst}{_scope(edge)}" for edge in ranked[:SHOWN_CONDITIONS]]
        if len(ranked) > SHOWN_CONDITIONS:
            parts.append(f"{len(ranked) - SHOWN_CONDITIONS} more")
        ground = context.ground().rest(*ranked)
        for edge in ranked[:SHOWN_CONDITIONS]:
            ground.cite(edge.path, edge.line, edge.line, edge.src)
        found.extend(ground.finding({"requires": "precondition", "conflicts_with": "conflict", "enables": "enables"}[type_], listed(parts) + ".", "stated"))
    return found


def _scope(edge: Edge) -> str:
    said = edge.data.get("scope") or edge.data.get("text")
    return f" ({' '.join(str(said).split())})" if said else ""


def claims(context: Context) -> list[Finding]:
    """Claims that support the subject's concepts, each with its source and status."""
    supports = steps(context.graph, [link.node.key for link in context.subject.concepts], ("supports",), back=True, kind="claim")
    based = defaultdict(list)
    for step in steps(context.graph, [step.node.key for step in supports], ("based_on",)):
        based[step.edge.src].append(step)
    found: list[Finding] = []
    order = {link.node.id: place for place, link in enumerate(context.subject.concepts)}
    told = context.graph.rows(
        "SELECT key, text, status, cited, op_point FROM claim WHERE key IN (SELECT value FROM json_each(?))", json.dumps([s.node.key for s in supports])
    )
    rows = {row[0]: row[1:] for row in told}
    known = [support for support in supports if support.node.key in rows]
    for support in sorted(known, key=lambda step: (order[step.edge.dst], rows[step.node.key][1] != "measured", step.edge.key))[:SHOWN_CLAIMS]:
        text, status, cited, op_point = rows[support.node.key]
        ground = context.ground().about(support.node).rest(support.edge, *(step.edge for step in based[support.node.id])).cite_node(support.node)
        point = f", at {op_point}" if op_point else ""
        found.extend(ground.finding("claim", f"{text.strip()} [{status}{point}: {cited.strip()}]", "stated"))
    if len(supports) > SHOWN_CLAIMS:
        context.note(f"{counted(len(supports) - SHOWN_CLAIMS, 'further claim')} not shown: kgagent neighbors {context.subject.concepts[0].node.id}")
    return found


def tunables(context: Context) -> list[Finding]:
    """The fields a kernel can be tuned by, with defaults and lines."""
    found: list[Finding] = []
    for link in context.subject.kernels[:1]:
        knobs = steps(context.graph, [link.node.key], ("tunes",), back=True, kind="knob")
        if not knobs:
            context.unknown.append(f"tunables of {link.node.id}: none is linked")
            continue
        ground = context.ground().about(link.node).rest(*(step.edge for step in knobs))
        for step in knobs[:SHOWN_KNOBS]:
            ground.cite_node(step.node, "tunable")
        more = f" and {len(knobs) - SHOWN_KNOBS} more" if len(knobs) > SHOWN_KNOBS else ""
        text = f"tuned by {', '.join(_knob(step.node) for step in knobs[:SHOWN_KNOBS])}{more}."
        found.extend(ground.finding("tunable", text, "source"))
    return found


def _knob(node: Node) -> str:
    default = node.data.get("default")
    return f"`{node.name}`" + (f" (default {plain_value(default)})" if default not in (None, "") else "")
