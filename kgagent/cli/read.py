"""Commands that only read: find, show, neighbors, kernels, flags, why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from kgagent.cli.output import State, counted, emit, json_option, short_path, table
from kgagent.errors import UnknownThing, UsageError
from kgagent.graph import Graph, Hit, Neighborhood, Node, open_graph, shortest_path
from kgagent.graph import find as find_nodes
from kgagent.graph import neighbors as walk

HIDDEN_DATA = {"external"}
MOST_STEPS = 16
ENDS, ENDS_OF_TYPES = 200, 5000  # ends followed a node on the way to --to: a hub's are many, those of a chosen type matter
USES_SHOWN = 4


def resolve(graph: Graph, text: str) -> Node:
    """A node by id, or by a name only one node of the best kind has; otherwise the candidates are named."""
    node = graph.node(text)
    if node is not None:
        return node
    hits = find_nodes(graph, text, limit=8)
    named = [hit.node for hit in hits if hit.node.name == text and not hit.node.data.get("external")]
    defined = [node for node in named if node.data.get("kind") != "constant"]  # `X = other.X` is another name, not another thing
    if len(named) == 1 or len(defined) == 1:
        return defined[0] if defined else named[0]
    if named:
        raise UnknownThing(f"{text!r} is the name of {len(named)} nodes", hint="one of: " + ", ".join(n.id for n in named))
    near = ", ".join(hit.node.id for hit in hits[:4])
    raise UnknownThing(f"no node {text!r}", hint=f"nearest: {near}" if near else "kgagent find TEXT")


@click.command()
@click.argument("text", nargs=-1, required=True)
@click.option("--kind", help="Only this kind (kernel, symbol, concept, experiment …).")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000))
@json_option
@click.pass_obj
def find(state: State, text: tuple[str, ...], kind: str | None, limit: int, as_json: bool) -> None:
    """Find nodes by name, words or substring."""
    with open_graph(state.workspace) as graph:
        kinds = [row[0] for row in graph.rows("SELECT DISTINCT kind FROM node ORDER BY kind")]
        if kind is not None and kind not in kinds:
            raise UsageError(f"no node here is of kind {kind!r}", hint=f"kinds: {', '.join(kinds) or 'none, the graph is empty'}")
        hits = find_nodes(graph, " ".join(text), kind=kind, limit=limit)
    if not hits:
        raise UnknownThing(f"nothing matches {' '.join(text)!r}", hint="kgagent sources shows what was ingested")
    emit(hits, as_json, _render_hits)


def _render_hits(hits: tuple[Hit, ...]) -> str:
    return table(("kind", "id", "where"), [(h.node.kind, h.node.id, short_path(h.node.citation)) for h in hits])


@click.command()
@click.argument("name")
@click.option("--cap", default=12, show_default=True, type=click.IntRange(1, 10000), help="Relations shown per type.")
@json_option
@click.pass_obj
def show(state: State, name: str, cap: int, as_json: bool) -> None:
    """Show one node with its relations; NAME is an id, or a name only one node has."""
    with open_graph(state.workspace) as graph:
        node = resolve(graph, name)
        around = walk(graph, node.id, cap=100000 if as_json else cap)
    emit(around, as_json, _render_node)


def _render_node(around: Neighborhood) -> str:
    node = around.center
    lines = [f"{node.id}  ({node.kind}, made by {node.made_by})"]
    if node.citation:
        end = f"-{node.line_end}" if node.line_end and node.line_end != node.line_start else ""
        lines.append(f"  at {short_path(node.citation)}{end}")
    if node.doc:
        lines.append("  " + "\n  ".join(node.doc.splitlines()[:12]))
    for key, value in node.data.items():
        if key not in HIDDEN_DATA and value not in (None, "", [], {}):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines.append(f"  {key}: {text}" if len(text) < 300 else f"  {key}: {text[:300]}… ({len(text):,} characters; --json has all)")
    groups: dict[tuple[str, str], list[str]] = {}
    for n in around.neighbors:
        groups.setdefault((n.edge.type, n.direction), []).append(_line(n.node, n.edge.line, n.edge.how))
    more = {label.removeprefix(f"{node.id} "): count for label, count in around.more}
    for (type_, direction), ends in groups.items():
        lines.append(f"{'→' if direction == 'out' else '←'} {type_}")
        lines.extend(f"    {end}" for end in ends)
        if rest := more.get(f"{type_} ({direction})"):
            lines.append(f"    and {rest:,} more")
    return "\n".join(lines)


def _line(node: Node, line: int, how: str) -> str:
    facts = [node.id]
    for key in ("annotation", "type", "default", "value"):
        if isinstance(node.data.get(key), str) and node.data[key]:
            facts.append(f"{'= ' if key in ('default', 'value') else ': '}{node.data[key][:60]}")
    if node.citation and node.line_start:
        facts.append(short_path(node.citation))
    elif line:
        facts.append(f"line {line}")
    return "  ".join(facts) + ("" if how in ("exact", "rule") else f"  [{how}]")


@click.command()
@click.argument("name")
@click.option("--to", "goal", help="Show the shortest path to this node instead.")
@click.option("--hops", default=1, show_default=True, type=click.IntRange(1, 4))
@click.option("--type", "types", multiple=True, help="Only these edge types; may be repeated, and with --to names the way.")
@click.option("--direction", type=click.Choice(["both", "out", "in"]), default="both", show_default=True)
@click.option("--cap", default=25, show_default=True, type=click.IntRange(1, 100000), help="Most ends shown per node, type and direction.")
@json_option
@click.pass_obj
def neighbors(state: State, name: str, goal: str | None, hops: int, types: tuple[str, ...], direction: str, cap: int, as_json: bool) -> None:
    """Walk from a node, or find the path to another."""
    with open_graph(state.workspace) as graph:
        node = resolve(graph, name)
        if goal:
            if resolve(graph, goal).id == node.id:
                raise UsageError(f"{node.id} is both ends of that path", hint="name two nodes")
            ends = ENDS_OF_TYPES if types else ENDS
            path = shortest_path(graph, node.id, resolve(graph, goal).id, types=types, direction=direction, max_hops=MOST_STEPS, cap=ends)
            if not path:
                kinds = f" along {', '.join(types)}" if types else ""
                raise UnknownThing(f"no path of at most {MOST_STEPS} steps{kinds} from {node.id} to {goal}", hint="kgagent neighbors shows what each leads to")
            emit(
                path,
                as_json,
                lambda edges: "\n".join(f"{e.src} -{e.type}-> {e.dst}" + (f"  {short_path(e.path)}:{e.line}" if e.path and e.line else "") for e in edges),
            )
            return
        around = walk(graph, node.id, hops=hops, types=types, direction=direction, cap=cap)
    emit(around, as_json, _render_walk)


def _render_walk(around: Neighborhood) -> str:
    lines = [around.center.id]
    for n in around.neighbors:
        arrow = f"-{n.edge.type}->" if n.direction == "out" else f"<-{n.edge.type}-"
        lines.append(f"{'  ' * n.hop}{arrow} {_line(n.node, n.edge.line, n.edge.how)}")
    lines.extend(f"  {label}: and {count:,} more" for label, count in around.more)
    return "\n".join(lines)


@click.command()
@click.option("--backend", type=click.Choice(["mosaic_tpu", "mosaic_gpu", "triton", "interpret", "unresolved"]))
@click.option("--family", help="A concept or word the kernel, its wrapper or path must carry, such as attention.")
@json_option
@click.pass_obj
def kernels(state: State, backend: str | None, family: str | None, as_json: bool) -> None:
    """List Pallas kernels with launch, body, wrapper and tunables."""
    from kgagent.ingest import list_kernels

    with open_graph(state.workspace) as graph:
        rows = list_kernels(graph, backend=backend, family=family)
        if not rows and not graph.value("SELECT count(*) FROM kernel"):
            raise UnknownThing("no kernels in this graph", hint="kgagent ingest pkg:jax/experimental/pallas pkg:tokamax")
    emit(rows, as_json, _render_kernels)


def _render_kernels(rows: tuple[Any, ...]) -> str:
    """A table a source, its paths relative to it: a path and a dotted name a row would say the same three times over."""
    lines: list[str] = []
    for source in dict.fromkeys(r.source for r in rows):
        mine = [r for r in rows if r.source == source]
        root = mine[0].file.removesuffix(mine[0].path)
        body = [(r.backend, r.name, f"{r.path}:{r.line}", _place(r.body, r) or f"[{r.body_how}]", _place(r.wrapper, r), len(r.tunables)) for r in mine]
        lines += [f"{source}, paths below {short_path(root)}", table(("backend", "kernel", "launch", "body", "wrapper", "tunables"), body), ""]
    if not rows:
        return "no kernel of that kind; kgagent kernels lists all"
    return "\n".join([*lines, f"{counted(len(rows), 'kernel')}; kgagent show KERNEL names the tunables, --json has every line"])


def _place(place: Any, row: Any) -> str:
    """`_splash_attention_forward:900`, with its file where that isn't the launch's."""
    if place is None:
        return ""
    file = "" if place.file == row.file else f"{Path(place.file).name}:"
    return f"{place.id.rsplit('.', 1)[-1]} {file}{place.line}"


@click.command()
@click.argument("pattern", default="*")
@json_option
@click.pass_obj
def flags(state: State, pattern: str, as_json: bool) -> None:
    """List XLA and libtpu flags found in source, and what the installed libtpu says of each.

    PATTERN is part of a name or a shell pattern such as 'xla_tpu_*fusion*'; leading dashes don't count. A flag is known (libtpu
    holds its name), moved (only under another prefix), unknown, or unchecked (no libtpu is installed).
    """
    from kgagent.ingest import list_flags

    with open_graph(state.workspace) as graph:
        rows = list_flags(graph, pattern.lstrip("-").partition("=")[0] or "*")
        if not rows:
            total = graph.value("SELECT count(*) FROM node WHERE kind = 'flag'")
            hint = f"kgagent flags lists all {total}" if total else "flags are read from ingested source: kgagent ingest SOURCE"
            raise UnknownThing(f"no flag matches {pattern!r}" if total else "no flags in this graph", hint=hint)
    emit(rows, as_json, _render_flags)


def _render_flags(rows: tuple[Any, ...]) -> str:
    lines = []
    for row in rows:
        lines.append(f"{row.status:<9} {row.name}" + (f"  is now {row.moved_to}" if row.moved_to else ""))
        lines += [f"          {short_path(use.file)}:{use.line}" + (f"  = {use.value}" if use.value else "") for use in row.uses[:USES_SHOWN]]
        if len(row.uses) > USES_SHOWN:
            lines.append(f"          and {len(row.uses) - USES_SHOWN} more (--json has all)")
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.status] = counts.get(row.status, 0) + 1
    said = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return "\n".join([*lines, f"{len(rows)} {'flag' if len(rows) == 1 else 'flags'}: {said} ({rows[0].how.rpartition(' in ')[2]})"])


@click.command()
@click.argument("question", nargs=-1, required=True)
@json_option
@click.pass_obj
def why(state: State, question: tuple[str, ...], as_json: bool) -> None:
    """Answer a question from the graph, with citations: kgagent why "why is splash fast here"."""
    from kgagent.ask import why as answer_question
    from kgagent.cli.answers import render_answer

    with open_graph(state.workspace) as graph:
        answer = answer_question(graph, " ".join(question))
    emit(answer, as_json, render_answer)
    if answer.subject is None:
        raise click.exceptions.Exit(1)
