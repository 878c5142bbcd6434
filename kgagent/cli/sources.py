"""Commands that fill, empty and mirror the graph: ingest, sources, forget, rebuild, wiki."""

from __future__ import annotations

from typing import Any

import click

from kgagent.cli.output import Progress, State, counted, emit, json_option, narrate, table
from kgagent.graph import open_graph

REVISION_CHARS = 12  # enough of a commit


@click.command()
@click.argument("locators", nargs=-1, required=True, metavar="SOURCE…")
@json_option
@click.pass_obj
def ingest(state: State, locators: tuple[str, ...], as_json: bool) -> None:
    """Read sources into the graph.

    A SOURCE is pkg:NAME (the installed package, never imported; pkg:NAME/SUB for a part), pypi:NAME[==VERSION] (downloaded,
    never installed or run), git:PATH_OR_URL[@REV], or a folder or file.
    Unchanged files are skipped by content; one transaction a source.
    """
    from kgagent.learn import learn

    with open_graph(state.workspace, write=True) as graph, Progress(as_json) as progress:
        learned = learn(graph, locators, progress=progress)
    emit(learned, as_json, lambda found: _render_reports(found.sources))
    for problem in learned.problems:
        narrate(f"concept page: {problem}")


def _render_reports(reports: tuple[Any, ...]) -> str:
    rows = [(r.name, r.revision, r.files, r.parsed, r.skipped, r.symbols, r.kernels, f"{r.seconds:.1f} s") for r in reports]
    text = table(("source", "revision", "files", "parsed", "skipped", "symbols", "kernels", "took"), rows)
    problems = [f"  {r.name}: {p}" for r in reports for p in r.problems]
    return text + ("\nproblems (the rest was ingested):\n" + "\n".join(problems) if problems else "")


@click.command()
@json_option
@click.pass_obj
def sources(state: State, as_json: bool) -> None:
    """List what was ingested: revision, age, counts, share unresolved, what is stale."""
    from kgagent.ingest import list_sources

    with open_graph(state.workspace) as graph:
        rows = list_sources(graph)
    emit(rows, as_json, _render_sources)


def _render_sources(rows: tuple[Any, ...]) -> str:
    if not rows:
        narrate("nothing was ingested yet; next: kgagent ingest pkg:jax/experimental/pallas")
        return ""
    head = ("source", "revision", "age", "files", "passed over", "symbols", "kernels", "calls", "unresolved", "")
    body = [
        (r.name, r.revision[:REVISION_CHARS], _age(r.age_days), f"{r.files:,}", r.skipped, f"{r.symbols:,}", r.kernels, f"{r.calls:,}",
         f"{100 * r.unresolved_frac:.1f}%", "stale" if r.stale else "")
        for r in rows
    ]  # fmt: skip
    return "\n".join([table(head, body), *(f"  {r.name} is stale: {r.stale}" for r in rows if r.stale)])


def _age(days: float) -> str:
    """Time since it was read, in the unit a person would use."""
    minutes = days * 1440
    return f"{minutes:.0f} min" if minutes < 60 else f"{minutes / 60:.0f} h" if minutes < 2880 else f"{days:.0f} days"


@click.command()
@click.argument("source")
@json_option
@click.pass_obj
def forget(state: State, source: str, as_json: bool) -> None:
    """Take a source out of the graph: its files, symbols and kernels.

    SOURCE is its name as kgagent sources shows it, or what was typed to ingest it. What other sources say about its names stays.
    The bytes in raw/objects stay too; kgagent ingest reads it again.
    """
    from kgagent.errors import UnknownThing
    from kgagent.ingest import forget as take_out
    from kgagent.ingest import list_sources
    from kgagent.learn import connect

    with open_graph(state.workspace, write=True) as graph, Progress(as_json) as progress:
        rows = list_sources(graph)
        row = next((r for r in rows if source in (r.name, r.locator, f"src:{r.name}")), None)
        if row is None:
            names = ", ".join(r.name for r in rows)
            raise UnknownThing(f"no source {source!r}", hint=f"ingested: {names}" if names else "nothing was ingested yet")
        progress(f"forgetting {row.name}", 0, 0)
        take_out(graph, row.name)
        connect(graph, progress)
    emit(row, as_json, lambda r: f"forgot {r.name}: {r.files:,} files, {r.symbols:,} symbols, {r.kernels} kernels; kgagent wiki removes its pages")


@click.command()
@json_option
@click.pass_obj
def rebuild(state: State, as_json: bool) -> None:
    """Make graph.db again from raw/ and wiki/; the old graph stands until the new one is whole."""
    from kgagent.rebuild import rebuild as rebuild_graph

    with Progress(as_json) as progress:
        report = rebuild_graph(state.workspace, progress=progress)
    emit(report, as_json, _render_rebuild)
    if report.problems:
        raise click.exceptions.Exit(1)


def _render_rebuild(report: Any) -> str:
    kinds = ("source", "concept", "experiment", "preflight", "profile")
    parts = ", ".join(counted(getattr(report, f"{kind}s"), kind) for kind in kinds)
    lines = [f"rebuilt: {parts}; {report.nodes:,} nodes, {report.edges:,} edges"]
    return "\n".join([*lines, *(f"  not brought back: {problem}" for problem in report.problems)])


@click.command()
@json_option
@click.pass_obj
def wiki(state: State, as_json: bool) -> None:
    """Write the Obsidian mirror of the graph; what people wrote stays byte for byte."""
    from kgagent.evidence.flame import flame_of
    from kgagent.learn import connect
    from kgagent.wiki import render

    with open_graph(state.workspace, write=True) as graph, Progress(as_json) as progress:
        _, problems = connect(graph, progress)
        progress("writing pages")
        report = render(graph, draw=flame_of)
    for problem in problems:
        narrate(f"concept page: {problem}")
    emit(
        report,
        as_json,
        lambda r: (
            f"wiki: {counted(len(r.written), 'file')} written, {r.unchanged} unchanged, {len(r.removed)} removed"
            + "".join(f"\n  conflict: {c}" for c in r.conflicts)
        ),
    )
