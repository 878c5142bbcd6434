"""Commands of the loop: plan, preflight, run, loop, resume, verify."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from kgagent.cli.output import Progress, State, emit, json_option, table
from kgagent.cli.reports import render_preflight, render_report, render_verify
from kgagent.errors import UnknownThing, UsageError
from kgagent.graph import Graph, open_graph


def assignments(pairs: Sequence[str], option: str) -> dict[str, str]:
    """`name=value` pairs as a mapping."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {pair!r} isn't NAME=VALUE", hint=f"{option} block_q=256")
        found[name.strip()] = value.strip()
    return found


@click.command()
@click.argument("lane")
@click.option("--explain", "explain", is_flag=True, help="Take each score apart: neighbours, weights, costs.")
@click.option("--limit", default=10, show_default=True, type=click.IntRange(1, 1000))
@json_option
@click.pass_obj
def plan(state: State, lane: str, explain: bool, limit: int, as_json: bool) -> None:
    """Rank the open hypotheses of a lane: P(supported) x expected gain / cost."""
    from kgagent.lanes import load_lane
    from kgagent.planner import plan as plan_lane

    workspace = state.workspace
    with open_graph(workspace, write=True) as graph:
        found = plan_lane(graph, load_lane(workspace, lane))
    emit(found, as_json, lambda p: _render_plan(p, explain, limit))


def _render_plan(found: Any, explain: bool, limit: int) -> str:
    from kgagent.planner import spelled

    place = f"{found.frontier}, {found.frontier_speedup:.2f}x the reference" if found.frontier else "no experiment yet"
    lines = [f"lane {found.lane} at {found.scope}; frontier: {place}", ""]
    rows = [
        (n, f"{r.score:.3g}", f"{r.p_supported.value:.2f}", f"{100 * r.expected_gain.value:+.0f}%", f"{r.cost.value:.2f} min", spelled(r.knobs), r.hypothesis)
        for n, r in enumerate(found.ranked[:limit], 1)
    ]
    lines.append(table(("", "score", "P", "gain", "cost", "change", "hypothesis"), rows))
    if len(found.ranked) > limit:
        lines.append(f"and {len(found.ranked) - limit} more (--limit)")
    if explain:
        for r in found.ranked[:limit]:
            lines += [
                "",
                f"{r.hypothesis}: {r.statement}",
                f"  score {r.score:.3g} = P {r.p_supported.value:.2f} x gain {r.expected_gain.value:.3f} / cost {r.cost.value:.2f} min",
            ]
            for name, part in (("P", r.p_supported), ("gain", r.expected_gain), ("cost", r.cost)):
                for term in part.terms[:6]:
                    lines.append(f"  {name:<5} {term.value:8.3f}  weight {term.weight:.2f}  {term.label} ({term.source})")
                if len(part.terms) > 6:
                    lines.append(f"  {name:<5} and {len(part.terms) - 6} lighter terms (--json)")
                if part.unknown:
                    lines.append(f"  {name:<5} not known: {part.unknown}")
    lines += ["", f"levers untried here: {', '.join(found.coverage.untried) or 'none'}"]
    if found.plateau:
        lines.append(f"plateau: {found.plateau}")
    lines += [f"not known: {text}" for text in found.unknown]
    return "\n".join(lines)


@click.command()
@click.argument("lane")
@click.option("--set", "settings", multiple=True, metavar="KNOB=VALUE", help="A knob of the configuration; may be repeated.")
@click.option("--flag", "flags", multiple=True, metavar="FLAG=VALUE", help="A compiler flag; may be repeated.")
@click.option("--topology", required=True, help="v5e:2x2, v5p:2x2x1, v6e:2x4, tpu7x:2x2x1 …")
@json_option
@click.pass_obj
def preflight(state: State, lane: str, settings: tuple[str, ...], flags: tuple[str, ...], topology: str, as_json: bool) -> None:
    """Compile a configuration and the reference with the TPU compiler; no TPU needed. Predicted, never measured."""
    from kgagent.executor import preflight as compile_ahead
    from kgagent.lanes import load_lane

    workspace = state.workspace
    with open_graph(workspace, write=True) as graph, Progress(as_json) as progress:
        result = compile_ahead(
            graph, load_lane(workspace, lane), assignments(settings, "--set"), topology, flags=assignments(flags, "--flag") or None, progress=progress
        )
    emit(result, as_json, render_preflight)
    if result.status != "ok":
        raise click.exceptions.Exit(1)


def _known_hypothesis(graph: Graph, lane: str, target: str) -> None:
    found = graph.rows("SELECT l.name FROM hypothesis h JOIN node n ON n.key = h.key JOIN node l ON l.key = h.lane WHERE n.id = ?", target)
    if not found:
        what = f"{target} is not a hypothesis" if graph.node(target) else f"no hypothesis {target!r}"
        raise UnknownThing(what, hint=f"kgagent plan {lane} lists them")
    if found[0][0] != lane:
        raise UsageError(f"{target} is of lane {found[0][0]}, not of {lane}", hint=f"kgagent run {found[0][0]} {target}")


def _hypothesis(graph: Graph, lane: Any, target: str | None, settings: dict[str, str], whats_new: str) -> str:
    from kgagent.executor import frontier
    from kgagent.executor.memory import cpu_scope
    from kgagent.planner import default_knobs, hypothesis_for
    from kgagent.planner import plan as plan_lane

    if target and settings:
        raise UsageError("name a hypothesis or --set knobs, not both")
    if target:
        return graph.need(target).id
    if settings:
        best = frontier(graph, lane)
        start, speedup = (best.knobs, best.speedup_vs_reference) if best else (default_knobs(lane), 1.0)
        return hypothesis_for(graph, lane, settings, cpu_scope(lane).id, start, speedup, whats_new=whats_new)
    ranked = plan_lane(graph, lane).ranked
    if not ranked:
        raise UsageError(f"nothing is open in lane {lane.name}", hint="kgagent run LANE --set KNOB=VALUE tries a configuration of your own")
    return str(ranked[0].hypothesis)


@click.command()
@click.argument("lane")
@click.argument("hypothesis", required=False)
@click.option("--set", "settings", multiple=True, metavar="KNOB=VALUE", help="Try this configuration instead.")
@click.option("--whats-new", default="", help="Why a change that was tried here should be tried again.")
@json_option
@click.pass_obj
def run(state: State, lane: str, hypothesis: str | None, settings: tuple[str, ...], whats_new: str, as_json: bool) -> None:
    """Run one experiment: a hypothesis, a configuration (--set), or the best of the plan."""
    from kgagent.executor import ensure_reference, run_experiment
    from kgagent.lanes import canonical_knobs, load_lane

    workspace = state.workspace
    knobs, loaded = assignments(settings, "--set"), load_lane(workspace, lane)
    canonical_knobs(loaded, knobs)  # before the reference is measured, which takes half a minute
    with open_graph(workspace, write=True) as graph, Progress(as_json) as progress:
        if hypothesis:
            _known_hypothesis(graph, loaded.name, hypothesis)
        ensure_reference(graph, loaded, progress=progress)
        report = run_experiment(graph, loaded, _hypothesis(graph, loaded, hypothesis, knobs, whats_new), progress=progress)
    emit(report, as_json, render_report)
    if report.verdict == "invalid":
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("lane")
@click.option("-n", "--experiments", default=5, show_default=True, type=click.IntRange(1, 10000))
@click.option("--minutes", type=click.FloatRange(min=0.01), help="Stop starting new ones after this long.")
@json_option
@click.pass_obj
def loop(state: State, lane: str, experiments: int, minutes: float | None, as_json: bool) -> None:
    """Run experiments, best first, within a budget."""
    from kgagent.lanes import load_lane
    from kgagent.planner import loop as run_loop

    workspace = state.workspace
    with open_graph(workspace, write=True) as graph, Progress(as_json) as progress:
        report = run_loop(graph, load_lane(workspace, lane), experiments=experiments, minutes=minutes, progress=progress)
    emit(report, as_json, lambda r: "\n".join([*(render_report(x) for x in r.reports), f"frontier: {r.frontier}", f"stopped: {r.stopped}"]))


@click.command()
@json_option
@click.pass_obj
def resume(state: State, as_json: bool) -> None:
    """Go on with what was interrupted; nothing is run twice."""
    from kgagent.executor import resume as go_on

    with open_graph(state.workspace, write=True) as graph, Progress(as_json) as progress:
        reports = go_on(graph, progress=progress)
    emit(reports, as_json, lambda rs: "\n".join(render_report(r) for r in rs) if rs else "nothing was interrupted")


@click.command()
@click.argument("target", required=False)
@click.option("--all", "everything", is_flag=True, help="Every run (the default without TARGET).")
@json_option
@click.pass_obj
def verify(state: State, target: str | None, everything: bool, as_json: bool) -> None:
    """Check receipts, artefacts and arithmetic offline: a RUN, a receipt file, or all."""
    from kgagent.executor import verify as check

    if target and everything:
        raise UsageError("name a run or --all, not both")
    report = check(state.workspace, target)
    emit(report, as_json, render_verify)
    if not report.ok:
        raise click.exceptions.Exit(1)
