"""Commands on profiles and compiles: profile, evidence, flame, gap, kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kgagent.cli.output import State, emit, json_option, narrate, short_path, table
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
@json_option
@click.pass_obj
def add(state: State, path: Path, run_name: str | None, lane: str | None, hlo: tuple[Path, ...], as_json: bool) -> None:
    """Read an xplane file or an xprof log folder, several hosts too, and join it to HLO, lines and symbols."""
    from kgagent.evidence.add import add_profile
    from kgagent.evidence.views import overview

    name = run_name or path.resolve().name.removesuffix(".pb").removesuffix(".xplane")
    with open_graph(state.workspace, write=True) as graph, graph.transaction():
        added = add_profile(graph, path, run=name, lane=lane, hlo=hlo)
    emit(
        {"id": added.id, "devices": overview(added.profile), "modules": added.modules, "missing_hlo": added.missing_hlo},
        as_json,
        lambda _: _overview(added.profile),
    )
    if not as_json:
        narrate(f"{added.id}: {added.weighed.remainder_text}")
        if added.missing_hlo:
            narrate(f"no HLO for {', '.join(added.missing_hlo)}: give it with --hlo FILE")


def _overview(found: Any) -> str:
    from kgagent.evidence.views import overview

    rows = []
    for d in overview(found):
        step = f"{d.median_step_us:,.3f} us" if d.median_step_us is not None else "not in this trace"
        idle = f"{d.idle_us:,.3f} us" if d.idle_us is not None else "not in this trace"
        rows.append((d.device, d.device_type, d.executions, step, f"{d.busy_us:,.4f} us", idle, f"{d.op_us:,.3f} us"))
    lines = [table(("device", "type", "executions", "median step", "busy", "idle", "in ops"), rows)]
    lines += [f"{d.device}: not in this trace: {', '.join(d.absent)}" for d in found.devices if d.absent]
    return "\n".join(lines)


@profile.command("list")
@json_option
@click.pass_obj
def list_profiles(state: State, as_json: bool) -> None:
    """Added profiles by name."""
    from kgagent.evidence.add import stored_runs

    with open_graph(state.workspace) as graph:
        emit(stored_runs(graph), as_json, lambda names: "\n".join(names) or "no profile was added; kgagent profile add PATH")


VIEWS = ("overview", "ops", "kernels", "counters", "collectives", "memory")


@profile.command()
@click.argument("run_name", metavar="RUN")
@click.option("--view", type=click.Choice(VIEWS), default="overview", show_default=True)
@click.option("--xprof", "tool", help="One of xprof's own tools instead: roofline_model, input_pipeline_analyzer, memory_profile, hlo_stats …")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 100000))
@json_option
@click.pass_obj
def show(state: State, run_name: str, view: str, tool: str | None, limit: int, as_json: bool) -> None:
    """Look at an added profile: its own views, or any of xprof's tools."""
    from kgagent.evidence.add import stored_profile, unpacked_traces
    from kgagent.evidence.xprof_tables import xprof_json, xprof_tables

    with open_graph(state.workspace) as graph:
        kept = stored_profile(graph, run_name.removeprefix("profile:"))
        if tool:
            with unpacked_traces(graph, kept.manifest["traces"]) as folder:
                if as_json:
                    emit(xprof_json(folder, tool), True, str)
                else:
                    emit(
                        xprof_tables(folder, tool),
                        False,
                        lambda tables: "\n\n".join(_xprof_table(t, limit) for t in tables) or f"{tool} has no table: use --json",
                    )
            return
    if view == "overview":
        from kgagent.evidence.views import overview

        emit(overview(kept.profile), as_json, lambda _: _overview(kept.profile))
        return
    rows, header = _view(kept, view)
    emit([dict(zip(header, row, strict=True)) for row in rows], as_json, lambda _: _limited(header, rows, limit))


def _view(kept: Any, view: str) -> tuple[list[tuple[Any, ...]], tuple[str, ...]]:
    """Rows of a view with their column names."""
    from kgagent.evidence import views
    from kgagent.evidence.liveness import memory_peak

    if view == "ops":
        ops = kept.profile.ops()
        return [(o.name, o.module, o.occurrences, round(o.self_us, 3), o.flops, o.bytes_accessed) for o in ops], (
            "op",
            "module",
            "times",
            "self_us",
            "flops",
            "bytes",
        )
    if view == "kernels":
        found = views.kernels(kept.profile, kept.weighed())
        return [(k.kernel, k.invocations, round(k.total_us, 3), round(k.share, 4), k.wait_frac) for k in found], (
            "kernel",
            "times",
            "total_us",
            "share",
            "dma_wait",
        )
    if view == "counters":
        counters = [(d.name, c.name, c.measure, c.samples, c.mean, c.largest) for d in kept.profile.devices for c in d.counters]
        return counters, ("device", "counter", "measure", "samples", "mean", "largest")
    modules = kept.modules()
    if view == "collectives":
        return [(t.name, t.kind, round(t.exposed_us, 3)) for t in views.exposed_transfers(kept.profile, modules)], ("op", "kind", "exposed_us")
    buffers = [(name, b.name, b.kind, b.shape, b.buffer_bytes, b.line) for name, module in modules.items() for b in memory_peak(module).buffers]
    return sorted(buffers, key=lambda row: -row[4]), ("module", "buffer", "kind", "shape", "bytes", "line")


def _limited(header: tuple[str, ...], rows: list[tuple[Any, ...]], limit: int) -> str:
    shown = [tuple("not in this trace" if cell is None else cell for cell in row) for row in rows[:limit]]
    if not rows:
        return "not in this trace"
    return table(header, shown) + (f"\nand {len(rows) - limit:,} more (--limit, --json)" if len(rows) > limit else "")


def _xprof_table(found: Any, limit: int) -> str:
    return _limited(tuple(found.labels), [tuple(row) for row in found.rows], limit)


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
    emit(tree, as_json, _render_tree)


def _render_tree(tree: Any) -> str:
    lines = [f"{tree.profile} ({tree.label}): {tree.total:,.4g} {tree.unit}; {tree.remainder}"]
    for row in tree.rows:
        lines.append(f"{100 * row.share:5.1f}%  {row.op_class} {row.name} {row.shape}" + (f"  {row.kernel}" if row.kernel else ""))
        for line in row.lines[:4]:
            path, _, number = line.place.rpartition(":")
            concepts = f"  [{', '.join(c.removeprefix('concept:') for c in line.concepts[:3])}]" if line.concepts else ""
            lines.append(f"          {short_path(path)}:{number} {line.function}" + (f"  {line.symbol}" if line.symbol else "") + concepts)
        if len(row.lines) > 4:
            lines.append(f"          and {len(row.lines) - 4} more frames (--json)")
    if tree.rows_left_out:
        lines.append(f"and {tree.rows_left_out:,} more operations with {tree.weight_left_out:,.4g} {tree.unit} (--limit)")
    return "\n".join(lines)


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

    with open_graph(state.workspace) as graph:
        run = recorded_run(graph, run_name)
        weighed = weighed_from_graph(graph, run)
    if output.suffix not in (".svg", ".json"):
        raise UsageError(f"{output.name} is neither .svg nor .json", hint="-o flame.svg, or -o flame.json for speedscope")
    text = flame_svg(weighed, run) if output.suffix == ".svg" else speedscope(weighed, run)
    write_atomic(output, text.encode())
    emit(
        {"run": run, "output": str(output), "total": weighed.total, "unit": weighed.unit, "remainder": weighed.remainder_text},
        as_json,
        lambda r: f"{r['output']}: {r['total']:,.4g} {r['unit']}; {r['remainder']}",
    )


@click.command(help=f"Set two runs side by side, largest difference first; rows sum to the difference. {RUN_HELP}")
@click.argument("run_a", metavar="RUN_A")
@click.argument("run_b", metavar="RUN_B")
@click.option("--by", type=click.Choice(["class", "line", "function", "concept"]), help="Only this way (default: class, then line, then concept).")
@click.option("--limit", default=10, show_default=True, type=click.IntRange(1, 100000))
@json_option
@click.pass_obj
def gap(state: State, run_a: str, run_b: str, by: str | None, limit: int, as_json: bool) -> None:
    """Set two runs side by side."""
    from kgagent.evidence import gap as gaps
    from kgagent.evidence.recorded import by_concept, weighed_from_graph

    with open_graph(state.workspace) as graph:
        a, b = recorded_run(graph, run_a), recorded_run(graph, run_b)
        left, right = weighed_from_graph(graph, a), weighed_from_graph(graph, b)
        keys = {"class": gaps.by_class, "line": gaps.by_line, "function": gaps.by_function, "concept": by_concept(graph)}
        found = [gaps.gap(left, right, keys[way], way) for way in ([by] if by else ["class", "line", "concept"])]
        differs = _differs(graph, a, b)
    emit({"a": a, "b": b, "gaps": found, "differs": differs}, as_json, lambda _: _render_gaps(a, b, found, differs, limit))


def _differs(graph: Graph, a: str, b: str) -> dict[str, Any] | None:
    """What came and went between the two programs, where a compile recorded it (candidate to reference)."""
    for candidate, reference, flipped in ((b, a, False), (a, b, True)):
        for edge in graph.edges(src=candidate, type="differs_from", dst=reference):
            went, came = ("buffers_came", "buffers_went") if flipped else ("buffers_went", "buffers_came")
            return {"went": edge.data.get(went, []), "came": edge.data.get(came, [])}
    return None


def _render_gaps(a: str, b: str, found: list[Any], differs: dict[str, Any] | None, limit: int) -> str:
    lines = [f"from {a} to {b}"]
    for one in found:
        lines += ["", f"by {one.by}: {one.a_total:,.4g} to {one.b_total:,.4g} {one.unit} ({one.b_total - one.a_total:+,.4g})"]
        lines += [f"  {row.difference:+14,.4g}  {row.a:12,.4g} to {row.b:12,.4g}  {_key(row.key)}" for row in one.rows[:limit]]
        if len(one.rows) > limit:
            lines.append(f"  and {len(one.rows) - limit} more rows (--limit)")
    for word in ("went", "came"):
        if differs and differs[word]:
            lines += ["", f"buffers that {word}"]
            lines += [
                f"  {x.get('shape', '')} {x.get('op', '')}  {x.get('bytes', 0) / 2**20:,.1f} MiB  {_key(str(x.get('line', '')))}" for x in differs[word][:limit]
            ]
            if len(differs[word]) > limit:
                lines.append(f"  and {len(differs[word]) - limit} more (--json)")
    return "\n".join(lines)


def _key(key: str) -> str:
    path, _, line = key.rpartition(":")
    return f"{short_path(path)}:{line}" if path.startswith("/") and line.isdigit() else key


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
    emit(digest, as_json, _render_kernel)


def _render_kernel(k: Any) -> str:
    unknown = "not known"
    vmem = f"{k.vmem_bytes / 2**20:,.2f} MiB" if k.vmem_bytes is not None else unknown
    if k.vmem_frac is not None:
        vmem += f" of {k.vmem_limit_bytes / 2**20:,.0f} MiB ({100 * k.vmem_frac:.0f}%)"
    rows = [
        ("kernel", k.kernel or unknown),
        ("grid", " x ".join(map(str, k.grid)) if k.grid else unknown),
        ("blocks", ", ".join("x".join(map(str, w)) for w in k.windows) or unknown),
        ("steps", k.steps if k.steps is not None else unknown),
        ("VMEM", vmem),
        ("self time", f"{k.self_us:,.3f} us over {k.occurrences}" if k.self_us is not None else "not timed"),
    ]
    lines = [f"{k.name}  {k.op}", *(f"  {name:<10} {value}" for name, value in rows)]
    for key, value in (k.schedule or {}).items():
        lines.append(f"  {key:<24} {value}" if not isinstance(value, (dict, list)) else f"  {key:<24} {str(value)[:90]}")
    if k.lines:
        lines.append("  lines by share of the schedule (static, before loop and condition weights)")
        lines += [f"    {100 * line.share:5.1f}%  {_key(line.place)}" for line in k.lines[:8]]
    if k.levers:
        lines.append("  levers its concepts name")
        lines += [f"    {lever.lever}  ({lever.concept})" for lever in k.levers[:10]]
        if len(k.levers) > 10:
            lines.append(f"    and {len(k.levers) - 10} more (--json)")
    return "\n".join(lines)
