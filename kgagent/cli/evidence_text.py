"""Profiles and compiles as text: tables a person reads, always with what is left out and what the trace lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kgagent.cli.output import short_path, table

ABSENT = "not in this trace"


def limited(header: tuple[str, ...], rows: Sequence[Sequence[Any]], limit: int) -> str:
    """A table of the first rows, with how many more there are; nothing at all is said too."""
    if not rows:
        return ABSENT
    shown = [tuple(ABSENT if cell is None else cell for cell in row) for row in rows[:limit]]
    return table(header, shown) + (f"\nand {len(rows) - limit:,} more (--limit, --json)" if len(rows) > limit else "")


def key(text: str) -> str:
    """`path:line` with a path relative to here; anything else as it is."""
    path, _, line = text.rpartition(":")
    return f"{short_path(path)}:{line}" if path.startswith("/") and line.isdigit() else text


def _us(value: float | None, digits: int = 3) -> str:
    return f"{value:,.{digits}f} us" if value is not None else ABSENT


def _percent(value: float | None) -> str:
    return f"{100 * value:.1f}%" if value is not None else ABSENT


def _absent(absent: Sequence[str]) -> list[str]:
    return [f"{ABSENT}: {'; '.join(absent)}"] if absent else []


def overview(profile: Any) -> str:
    from kgagent.evidence.views import overview as devices

    found = devices(profile)
    rows = [(d.device, d.device_type, d.executions, _us(d.median_step_us), _us(d.busy_us, 4), _us(d.idle_us), _us(d.op_us)) for d in found]
    lines = [table(("device", "type", "executions", "median step", "busy", "idle", "in ops"), rows)]
    compiled = found[0].compile_us if found else None
    lines.append(f"compiling: {_us(compiled)}" + (f" in {found[0].compilations} calls" if compiled is not None else ""))
    lines += [f"{d.device}: {line}" for d in found for line in _absent(d.absent)]
    return "\n".join(lines)


def ops(found: Sequence[Any], limit: int) -> str:
    rows = [(o.name, o.module, o.occurrences, f"{o.self_us:,.3f}", o.flops, o.bytes_accessed) for o in found]
    return limited(("op", "module", "times", "self us", "flops", "bytes"), rows, limit)


def roofline(found: Any, limit: int) -> str:
    rows = [
        (o.name, o.category, o.occurrences, f"{o.self_us:,.3f}", o.gflops_per_s, o.hbm_gib_per_s, o.flops_per_byte, o.bound_by, _percent(o.roofline_frac))
        for o in found.ops
    ]
    peaks = (found.device_type, found.peak_gflops_per_s, found.peak_hbm_gib_per_s, found.ridge_flops_per_byte)
    lines = [limited(("op", "category", "times", "self us", "GFLOP/s", "HBM GiB/s", "FLOP/byte", "bound by", "of roofline"), rows, limit)]
    if found.ops:
        lines.insert(0, "{}: peak {:,.0f} GFLOP/s, {:,.1f} GiB/s, ridge at {:,.0f} FLOP/byte".format(*(p if p is not None else float("nan") for p in peaks)))
    if found.blind_frac is not None:
        lines.append(f"blind: {_percent(found.blind_frac)} of op time has no rate")
    lines += [f"blind: {what}" for what in found.blind]
    return "\n".join(lines + _absent(found.absent))


def memory(found: Any, limit: int) -> str:
    lines = []
    for a in found.allocators:
        of = f" of {a.capacity_bytes / 2**20:,.1f} MiB" if a.capacity_bytes else ""
        lines.append(f"measured, allocator {a.allocator}: peak {a.peak_bytes / 2**20:,.2f} MiB{of} (stack {a.stack_bytes / 2**20:,.2f})")
        rows = [(f"{x.allocation_bytes * x.count / 2**20:,.2f} MiB", x.count, x.name, x.shape, x.region) for x in a.allocations]
        lines += [limited(("size", "count", "allocation", "shape", "region"), rows, limit), ""]
    for m in found.modules:
        lines.append(f"static, {m.module}: peak {m.peak.peak_bytes / 2**20:,.2f} MiB at {m.peak.at or 'entry'}, arguments {m.peak.argument_bytes / 2**20:,.2f}")
        buffers = [(f"{b.buffer_bytes / 2**20:,.2f} MiB", b.kind, b.name, b.shape, key(b.line)) for b in m.peak.buffers]
        lines += [limited(("size", "kind", "buffer", "shape", "line"), buffers, limit), ""]
    return "\n".join([*lines, *_absent(found.absent)]).rstrip("\n")


def kernels(found: Sequence[Any], limit: int) -> str:
    rows = [(k.kernel, k.invocations, f"{k.total_us:,.3f}", _percent(k.share), _percent(k.wait_frac)) for k in found]
    lines = [limited(("kernel", "times", "total us", "share", "waits for DMA"), rows, limit)]
    for k in found[:limit]:
        if k.stages:
            stages = [(s.name, s.occurrences, f"{s.total_ps / 1e6:,.3f}") for s in k.stages]
            lines += ["", f"{k.kernel}: stages", limited(("stage", "times", "total us"), stages, limit)]
        units = [(c.name, c.samples, f"{c.mean:,.2f}", f"{c.largest:,.2f}") for c in k.counters if c.measure == "% util"]
        if units:
            lines += ["", f"{k.kernel}: functional units, % of a sample", limited(("unit", "samples", "mean", "largest"), units, limit)]
    if found and not found[0].counters:
        lines.append("units and stages: not in this trace, or it ran several kernels, whose samples can't be told apart")
    return "\n".join(lines)


def counters(found: Sequence[Any], limit: int) -> str:
    rows = [(c.device, c.counter.name, c.counter.measure, c.counter.samples, f"{c.counter.mean:,.4g}", f"{c.counter.largest:,.4g}") for c in found]
    return limited(("device", "counter", "measure", "samples", "mean", "largest"), rows, limit)


def collectives(found: Sequence[Any], limit: int) -> str:
    return limited(("op", "kind", "exposed us"), [(t.name, t.kind, f"{t.exposed_us:,.3f}") for t in found], limit)


def input_pipeline(found: Any, limit: int) -> str:
    lines = [
        f"steps marked: {found.steps if found.steps is not None else ABSENT}" + (f", {found.step_ms:,.3f} ms each" if found.step_ms is not None else ""),
        f"waiting for input: {_percent(found.input_frac)}" + (f" ({found.conclusion})" if found.conclusion else ""),
        f"transfers to the device: {_us(found.to_device_us)}",
        f"no device ran for {_us(found.idle_us)} between the first and the last execution",
    ]
    if found.ops:
        lines.append(limited(("input op", "category", "times", "total ms"), [(o.name, o.category, o.count, o.total_ms) for o in found.ops], limit))
    rows = [(a.name, a.count, f"{a.total_us:,.1f}", f"{a.idle_us:,.1f}") for a in found.activities]
    lines += ["", "the host meanwhile (events nest, so times overlap)", limited(("host event", "times", "total us", "of it while idle"), rows, limit)]
    return "\n".join(lines + _absent(found.absent))


def xprof(tables: Sequence[Any], limit: int) -> str:
    return "\n\n".join(limited(tuple(t.labels), [tuple(row) for row in t.rows], limit) for t in tables)


def hlo(found: Any) -> str:
    lines = [
        f"{found.module} / {found.computation}",
        f"  {found.text[:2000]}" + (f" … {len(found.text) - 2000:,} more characters (--json)" if len(found.text) > 2000 else ""),
    ]
    lines += [f"  at {key(frame)}" for frame in found.frames]
    rows = [(n.direction, n.name, n.opcode, n.shape) for n in found.neighbours]
    return "\n".join([*lines, table(("", "instruction", "opcode", "shape"), rows) if rows else "no neighbours"])


def dump(added: Any) -> str:
    lines = [f"{added.run}: {added.files} file{'s' if added.files != 1 else ''} kept, {added.file_bytes / 2**20:,.1f} MiB before compression"]
    for k in added.kernels:
        bundles = f"{k.schedule.bundles:,} bundles" if k.schedule else "no schedule in this dump"
        grid = f"grid {' x '.join(map(str, k.program.grid))}" if k.program and k.program.grid else ""
        lines.append(f"  {k.op.rpartition('/')[2]}: {', '.join(part for part in (bundles, grid) if part)}")
    if added.without:
        lines.append(f"  not in this dump: {', '.join(added.without)}")
    if added.others:
        lines.append(f"  {added.others} other programs in the folder were left alone")
    return "\n".join(lines)


def tree(found: Any) -> str:
    lines = [f"{found.profile} ({found.label}): {found.total:,.4g} {found.unit}; {found.remainder}"]
    for row in found.rows:
        lines.append(f"{100 * row.share:5.1f}%  {row.op_class} {row.name} {row.shape}" + (f"  {row.kernel}" if row.kernel else ""))
        for line in row.lines[:4]:
            concepts = f"  [{', '.join(c.removeprefix('concept:') for c in line.concepts[:3])}]" if line.concepts else ""
            lines.append(f"          {key(line.place)} {line.function}" + (f"  {line.symbol}" if line.symbol else "") + concepts)
        if len(row.lines) > 4:
            lines.append(f"          and {len(row.lines) - 4} more frames (--json)")
    if found.rows_left_out:
        lines.append(f"and {found.rows_left_out:,} more operations with {found.weight_left_out:,.4g} {found.unit} (--limit)")
    return "\n".join(lines)


def gaps(a: str, b: str, names: tuple[str, str], found: Sequence[tuple[Any, Sequence[Any]]], change: Any, limit: int) -> str:
    """Rows with the hypothesis each suggests, then the buffers that only one side has."""
    from kgagent.evidence.candidates import statement

    lines = [f"from A = {a}" + (f" ({names[0]})" if names[0] != a else ""), f"  to B = {b}" + (f" ({names[1]})" if names[1] != b else "")]
    for one, rows in found:
        total = _weight(one.b_total - one.a_total, one.unit, "+")
        lines += ["", f"by {one.by}: {_weight(one.a_total, one.unit)} to {_weight(one.b_total, one.unit)} ({total})"]
        for row in rows[:limit]:
            sides = f"{_weight(row.row.a, one.unit):>16} to {_weight(row.row.b, one.unit):>16}"
            lines.append(f"  {_weight(row.difference, one.unit, '+'):>16} {sides}  {key(row.row.key)}")
            if row.statement:
                lines.append(f"      test: {statement(one, row.row)}")
                lines += [f"      levers: {', '.join(lever.removeprefix('lever:') for lever in row.levers[:4])}"] if row.levers else []
        if len(rows) > limit:
            lines.append(f"  and {len(rows) - limit} more rows (--limit)")
    if change is None:
        return "\n".join([*lines, "", "buffers: not known, no HLO was kept for one of the two"])
    for side, other, buffers in (("A", "B", change.buffers_went), ("B", "A", change.buffers_came)):
        lines += ["", f"buffers of {side} that {other} doesn't have" + ("" if buffers else ": none")]
        lines += [f"  {x.shape} {x.name}  {x.buffer_bytes / 2**20:,.1f} MiB  {key(x.line) or 'no line'}" for x in buffers[:limit]]
        if len(buffers) > limit:
            lines.append(f"  and {len(buffers) - limit} more (--json)")
    return "\n".join(lines)


def _weight(value: float, unit: str, sign: str = "") -> str:
    return f"{value / 2**20:{sign},.2f} MiB" if unit == "bytes" else f"{value:{sign},.3f} {unit}"


def kernel(k: Any) -> str:
    """One screen: what it is, what was scheduled, how it ran, which levers its concepts name."""
    unknown = "not known"
    vmem = f"{k.vmem_bytes / 2**20:,.2f} MiB" if k.vmem_bytes is not None else unknown
    if k.vmem_frac is not None:
        vmem += f" of {k.vmem_limit_bytes / 2**20:,.0f} MiB ({100 * k.vmem_frac:.0f}%)"
    held = [f" x {n}" for n in k.buffers] or [""] * len(k.windows)
    rows = [
        ("kernel", k.kernel or unknown),
        ("grid", " x ".join(map(str, k.grid)) if k.grid else unknown),
        ("blocks", ", ".join("x".join(map(str, w)) + n for w, n in zip(k.windows, held, strict=False)) or unknown),
        ("steps", k.steps if k.steps is not None else unknown),
        ("VMEM", vmem),
        ("self time", f"{k.self_us:,.3f} us over {k.occurrences}" if k.self_us is not None else "not timed"),
    ]
    lines = [f"{k.name}  {k.op}", *(f"  {name:<10} {value}" for name, value in rows), *_schedule(k.schedule)]
    if k.lines:
        lines.append("  lines by share of the schedule (static, before loop and condition weights)")
        lines += [f"    {100 * line.share:5.1f}%  {key(line.place)}" for line in k.lines[:8]]
    if k.levers:
        lines.append("  levers its concepts name")
        lines += [f"    {lever.lever}  ({lever.concept})" for lever in k.levers[:10]]
        if len(k.levers) > 10:
            lines.append(f"    and {len(k.levers) - 10} more (--json)")
    return "\n".join(lines)


def _schedule(s: dict[str, Any] | None) -> list[str]:
    """What a dump says, or how to get one."""
    if s is None:
        return ["  schedule   not known: kgagent profile dump RUN FOLDER, with the folder of --xla_jf_dump_to"]
    known = {name: "not in this dump" if s[name] is None else f"{s[name]:,}" for name in ("vector_spills", "vector_fills", "scalar_spills", "scalar_fills")}
    lines = [
        f"  bundles    {s['bundles']:,}, {s['empty_bundles']:,} empty; {sum(loop['bundles'] for loop in s['loops'] if loop['bound']):,} in "
        f"{len(s['loops'])} loop(s) of {', '.join(str(loop['bound'] or '?') for loop in s['loops']) or 'none'}",
        f"  spills     vector {known['vector_spills']}, scalar {known['scalar_spills']}; fills: vector {known['vector_fills']}, scalar {known['scalar_fills']}",
    ]
    if s["slots"]:
        busy = sorted(s["slots"].items(), key=lambda item: -item[1]["frac"])
        lines.append("  slots      " + ", ".join(f"{unit} {100 * slot['frac']:.0f}%" for unit, slot in busy) + " (of all bundles, static)")
    else:
        lines.append("  slots      not in this dump")
    shown = sorted(s["regions"], key=lambda region: -region["bundles"])[:6]
    lines += [f"  region     {r['bundles']:,} bundles that a condition may skip, {key(r['line']) or 'no line'}" for r in shown]
    if len(s["regions"]) > len(shown):
        lines.append(f"             and {len(s['regions']) - len(shown)} more regions (--json)")
    return lines
