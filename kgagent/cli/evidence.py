"""Commands on profiles and compiles: profile, evidence, flame, gap, kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kgagent.cli import evidence_text as text
from kgagent.cli.output import State, emit, json_option, narrate
from kgagent.errors import UnknownThing, UsageError
from kgagent.graph import Graph, open_graph

RUN_HELP = "RUN is a profile or compile (profile:NAME, compile:…), the name of an added profile, or an experiment."


def recorded_run(graph: Graph, name: str) -> str:
    """The profile node a person means: its id, an added profile's name, or what an experiment produced."""
    for candidate in (name, f"profile:{name}", f"compile:{name}"):
        node = graph.node(candidate)
        if node is not None and node.kind == "profile":
            return node.id
    for candidate in (name, f"exp:{name}"):
        if graph.node(candidate) is not None:
            made = [edge.dst for edge in graph.edges(src=candidate, type="produced") if graph.need(edge.dst).kind == "profile"]
            if made:
                return made[0]
    known = [row[0] for row in graph.rows("SELECT id FROM node WHERE kind = 'profile' ORDER BY key DESC LIMIT 4")]
    raise UnknownThing(f"no profile or compile {name!r}", hint=f"the newest: {', '.join(known)}" if known else "kgagent profile add, or kgagent preflight")


@click.group()
def profile() -> None:
    """Add profiles to the graph and look at them."""


@profile.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--run", "run_name", help="The profile's name here (default: the file's or folder's).")
@click.option("--lane", help="The lane it is about.")
@click.option("--hlo", multiple=True, type=click.Path(path_type=Path), help="HLO text of an executable whose module the trace lost; may be repeated.")
@click.option("--dump", multiple=True, type=click.Path(path_type=Path), help="LLO or Mosaic dump folder of the program that ran; may be repeated.")
@json_option
@click.pass_obj
def add(state: State, path: Path, run_name: str | None, lane: str | None, hlo: tuple[Path, ...], dump: tuple[Path, ...], as_json: bool) -> None:
    """Read an xplane file or an xprof log folder, several hosts too, and join it to HLO, lines and symbols."""
    from kgagent.evidence.add import add_profile
    from kgagent.evidence.views import overview

    name = run_name or path.resolve().name.removesuffix(".pb").removesuffix(".xplane")
    with open_graph(state.workspace, write=True) as graph:
        added = add_profile(graph, path, run=name, lane=lane, hlo=hlo, dumps=dump, vmem_limit=lambda run: _vmem_limit(graph, run))
    emit(
        {"id": added.id, "devices": overview(added.profile), "modules": added.modules, "missing_hlo": added.missing_hlo, "dumps": added.dumps},
        as_json,
        lambda _: text.overview(added.profile),
    )
    if not as_json:
        narrate(f"{added.id}: {added.weighed.remainder_text}")
        if added.missing_hlo:
            narrate(f"no HLO for {', '.join(added.missing_hlo)}: give it with --hlo FILE")
        for dumped in added.dumps:
            narrate(text.dump(dumped))


@profile.command("dump")
@click.argument("run_name", metavar="RUN")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--move", is_flag=True, help="Delete the files from FOLDER once they are kept in raw/, compressed.")
@click.option("--limit-mib", default=1024, show_default=True, type=click.IntRange(1), help="Refuse a dump whose files are larger.")
@json_option
@click.pass_obj
def add_dumped(state: State, run_name: str, folder: Path, move: bool, limit_mib: int, as_json: bool) -> None:
    """Tie an LLO or Mosaic dump folder to the Pallas kernels of an added profile or a compile."""
    from kgagent.evidence.dumps import add_dump

    with open_graph(state.workspace, write=True) as graph:
        run = recorded_run(graph, run_name)
        added = add_dump(graph, run, folder, limit_bytes=limit_mib * 2**20, vmem_limit_bytes=_vmem_limit(graph, run), move=move)
    emit(added, as_json, text.dump)


def _vmem_limit(graph: Graph, run: str) -> int | None:
    """What one operation may allocate on the run's chip unless a flag says otherwise; None for a chip nobody wrote down."""
    from kgagent.knowledge import load_chips

    data = graph.need(run).data
    told = data.get("devices")  # a compile says how many, a profile which
    devices = told if isinstance(told, list) else []
    kinds = {str(kind).casefold() for kind in (data.get("device_kind"), *(device.get("device_type") for device in devices)) if kind}
    return next((chip.scoped_vmem_default_bytes for chip in load_chips() if chip.device_kind.casefold() in kinds), None)


@profile.command("list")
@json_option
@click.pass_obj
def list_profiles(state: State, as_json: bool) -> None:
    """Added profiles by name."""
    from kgagent.evidence.add import stored_runs

    with open_graph(state.workspace) as graph:
        emit(stored_runs(graph), as_json, lambda names: "\n".join(names) or "no profile was added; kgagent profile add PATH")


VIEWS = ("overview", "ops", "roofline", "memory", "kernels", "counters", "collectives", "input")


@profile.command()
@click.argument("run_name", metavar="RUN")
@click.option("--view", type=click.Choice(VIEWS), default="overview", show_default=True)
@click.option("--xprof", "tool", help="One of xprof's own tools instead: op_profile, hlo_stats, framework_op_stats, perf_counters …")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 100000))
@json_option
@click.pass_obj
def show(state: State, run_name: str, view: str, tool: str | None, limit: int, as_json: bool) -> None:
    """Look at an added profile: its own views, or any of xprof's tools. A compile has the view memory."""
    from kgagent.evidence.add import stored_profile, unpacked_traces
    from kgagent.evidence.xprof_tables import xprof_json, xprof_tables

    with open_graph(state.workspace) as graph:
        if view == "memory" and not tool and (run := recorded_run(graph, run_name)).startswith("compile:"):
            from kgagent.evidence.kept_hlo import modules_of
            from kgagent.evidence.xprof_views import memory

            emit(memory(modules_of(graph, run)), as_json, lambda found: text.memory(found, limit))
            return
        kept = stored_profile(graph, run_name.removeprefix("profile:"))
        with unpacked_traces(graph, kept.manifest["traces"]) as folder:
            if not tool:
                _show(kept, view, folder, limit, as_json)
            elif as_json:
                emit(xprof_json(folder, tool), True, str)
            else:
                emit(xprof_tables(folder, tool), False, lambda tables: text.xprof(tables, limit) or f"{tool} has no table: use --json")


def _show(kept: Any, view: str, folder: Path, limit: int, as_json: bool) -> None:
    """One of our own views of a kept profile."""
    from kgagent.evidence import views, xprof_views

    profile = kept.profile
    if view == "overview":
        emit(views.overview(profile), as_json, lambda _: text.overview(profile))
    elif view == "ops":
        emit(profile.ops(), as_json, lambda ops: text.ops(ops, limit))
    elif view == "roofline":
        emit(xprof_views.roofline(folder, kept.weighed()), as_json, lambda found: text.roofline(found, limit))
    elif view == "memory":
        emit(xprof_views.memory(kept.modules(), folder), as_json, lambda found: text.memory(found, limit))
    elif view == "kernels":
        emit(views.kernels(profile, kept.weighed()), as_json, lambda found: text.kernels(found, limit))
    elif view == "counters":
        emit(views.counters(profile), as_json, lambda found: text.counters(found, limit))
    elif view == "collectives":
        emit(views.exposed_transfers(profile, kept.modules()), as_json, lambda found: text.collectives(found, limit))
    else:
        emit(xprof_views.input_pipeline(folder, profile), as_json, lambda found: text.input_pipeline(found, limit))


@profile.command()
@click.argument("run_name", metavar="RUN")
@click.argument("instruction")
@click.option("--module", help="The module to look in (default: the first that has the instruction).")
@json_option
@click.pass_obj
def hlo(state: State, run_name: str, instruction: str, module: str | None, as_json: bool) -> None:
    """An HLO instruction of a profile or compile: its text, its lines, what it reads, who reads it, what it calls."""
    from kgagent.evidence.kept_hlo import around

    with open_graph(state.workspace) as graph:
        found = around(graph, recorded_run(graph, run_name), instruction.removeprefix("%"), module)
    emit(found, as_json, text.hlo)


@click.command(help=f"Show a run as op, HLO, line, symbol, concept, with its remainder. {RUN_HELP}")
@click.argument("run_name", metavar="RUN")
@click.option("--limit", default=12, show_default=True, type=click.IntRange(1, 100000))
@json_option
@click.pass_obj
def evidence(state: State, run_name: str, limit: int, as_json: bool) -> None:
    """Show a run as a tree with self time or static cost."""
    from kgagent.evidence.recorded import evidence_tree

    with open_graph(state.workspace) as graph:
        tree = evidence_tree(graph, recorded_run(graph, run_name), limit=1_000_000 if as_json else limit)
    emit(tree, as_json, text.tree)


@click.command(help=f"Write a flame graph by source function; its lines sum to the run's total. {RUN_HELP}")
@click.argument("run_name", metavar="RUN")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="FILE.svg, or FILE.json for speedscope.")
@json_option
@click.pass_obj
def flame(state: State, run_name: str, output: Path, as_json: bool) -> None:
    """Write a flame graph by source function."""
    from kgagent.evidence.flame import flame_svg, speedscope
    from kgagent.evidence.recorded import weighed_from_graph
    from kgagent.workspace import write_atomic

    if output.suffix not in (".svg", ".json"):
        raise UsageError(f"{output.name} is neither .svg nor .json", hint="-o flame.svg, or -o flame.json for speedscope")
    if not output.resolve().parent.is_dir():
        raise UsageError(f"no folder {output.parent}", where=str(output), hint="make it first, or name another")
    with open_graph(state.workspace) as graph:
        run = recorded_run(graph, run_name)
        weighed = weighed_from_graph(graph, run)
    drawn = flame_svg(weighed, run) if output.suffix == ".svg" else speedscope(weighed, run)
    write_atomic(output, drawn.encode())
    emit(
        {"run": run, "output": str(output), "total": weighed.total, "unit": weighed.unit, "remainder": weighed.remainder_text},
        as_json,
        lambda r: f"{r['output']}: {r['total']:,.4g} {r['unit']}; {r['remainder']}",
    )


@click.command(
    help=f"Set two runs side by side, from RUN_A to RUN_B, largest difference first, each row a candidate hypothesis; rows sum to the difference. {RUN_HELP}"
)
@click.argument("run_a", metavar="RUN_A")
@click.argument("run_b", metavar="RUN_B")
@click.option("--by", type=click.Choice(["class", "line", "function", "concept"]), help="Only this way (default: class, then line, then concept).")
@click.option("--limit", default=10, show_default=True, type=click.IntRange(1, 100000))
@json_option
@click.pass_obj
def gap(state: State, run_a: str, run_b: str, by: str | None, limit: int, as_json: bool) -> None:
    """Set two runs side by side."""
    from kgagent.evidence import gap as gaps
    from kgagent.evidence.candidates import candidates
    from kgagent.evidence.kept_hlo import diff_of
    from kgagent.evidence.recorded import by_concept, weighed_from_graph

    with open_graph(state.workspace) as graph:
        a, b = recorded_run(graph, run_a), recorded_run(graph, run_b)
        left, right = weighed_from_graph(graph, a), weighed_from_graph(graph, b)
        keys = {"class": gaps.by_class, "line": gaps.by_line, "function": gaps.by_function, "concept": by_concept(graph)}
        names = _called(graph, a, b)
        found = [gaps.gap(left, right, keys[way], way) for way in ([by] if by else ["class", "line", "concept"])]
        rows = [candidates(graph, one, a=names[0], b=names[1]) for one in found]
        change = diff_of(graph, a, b)
    whole = {
        "a": a,
        "b": b,
        "gaps": [{"by": g.by, "unit": g.unit, "a_total": g.a_total, "b_total": g.b_total, "rows": r} for g, r in zip(found, rows, strict=True)],
        "only_in_a": change.buffers_went if change else None,
        "only_in_b": change.buffers_came if change else None,
    }
    emit(whole, as_json, lambda _: text.gaps(a, b, names, list(zip(found, rows, strict=True)), change, limit))


def _called(graph: Graph, a: str, b: str) -> tuple[str, str]:
    """What to call two runs in a sentence: by their knobs where those tell them apart, else by their ids."""
    names = []
    for run in (a, b):
        knobs = graph.need(run).data.get("knobs")
        names.append(" ".join(f"{knob}={value}" for knob, value in sorted(knobs.items())) if isinstance(knobs, dict) and knobs else run)
    return (names[0], names[1]) if names[0] != names[1] else (a, b)


@click.command(help=f"One screen about a Pallas kernel in a run: fit, schedule, time, and the levers its concepts name. {RUN_HELP}")
@click.argument("run_name", metavar="RUN")
@click.argument("name")
@json_option
@click.pass_obj
def kernel(state: State, run_name: str, name: str, as_json: bool) -> None:
    """One screen about a Pallas kernel in a run."""
    from kgagent.evidence.digest import kernel_digest

    with open_graph(state.workspace) as graph:
        digest = kernel_digest(graph, recorded_run(graph, run_name), name)
    emit(digest, as_json, text.kernel)
