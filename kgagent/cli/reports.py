"""Experiments, preflights and checks as text for a terminal."""

from __future__ import annotations

from typing import Any

from kgagent.cli.output import counted, short_path

LIBRARIES = "/site-packages/"
SHOWN = 8  # instructions of each side; --json has all


def spelled(knobs: dict[str, Any]) -> str:
    """`impl=splash block_q=256`, as typed after --set."""
    return " ".join(f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in knobs.items())


def render_report(r: Any) -> str:
    """One experiment in a few lines: verdict, speed with interval and floor, gates that failed, where it stands."""
    lines = [f"{r.experiment}  {r.verdict or r.role}: {spelled(r.knobs)}"]
    if r.verdict or r.detail:
        lines.append(f"  {r.reason or r.detail}")
    if r.speedup is not None:
        lines.append(f"  {r.speedup_vs_reference:.2f}x the reference, {r.speedup:.2f}x its baseline {r.baseline} ({r.device})")
    lines += [f"  gate {g.name} failed: {g.detail}" for g in r.gates if g.result == "fail"]
    if r.commit_sha:
        lines.append(f"  branch {r.branch}, receipts in {short_path(r.receipts)}")
    return "\n".join(lines)


def render_preflight(r: Any) -> str:
    """Success or the compiler's error, memory beside the reference's, and which instructions came and went."""
    how = f"compiled in {r.compile_s:.1f} s" if r.status == "ok" else "it does not compile"
    head = f"{spelled(r.knobs) or 'reference'} for {r.topology}: {r.status}, {how} ({r.label}; nothing was run)"
    if r.status != "ok":
        return "\n".join(filter(None, [head, f"  {r.error}", f"  at {r.error_line}" if r.error_line else "", f"  next: {r.hint}" if r.hint else ""]))
    lines = [head]
    for name, value in r.memory.items():
        if value is not None:
            before = r.reference_memory.get(name)
            lines.append(
                f"  {name.removesuffix('_bytes').replace('_', ' '):<15} {mib(value):>12}" + (f"   reference {mib(before)}" if before is not None else "")
            )
    if r.kernels:
        lines.append(f"  kernels: {', '.join(r.kernels)}")
    if r.mechanism:
        lines.append(f"  mechanism: {r.mechanism.result} ({r.mechanism.detail})")
    for title, changes in (("went", r.went), ("came", r.came)):
        lines.append(f"  {title}: {counted(len(changes), 'instruction')}")
        lines += [f"    {_change(c)}" for c in changes[:SHOWN]]
        if len(changes) > SHOWN:
            lines.append(f"    and {len(changes) - SHOWN} more (--json)")
    if any(LIBRARIES in c.line for c in (*r.went[:SHOWN], *r.came[:SHOWN])):
        root = next(c.line for c in (*r.went, *r.came) if LIBRARIES in c.line).partition(LIBRARIES)[0] + LIBRARIES
        lines.append(f"  … is {root.rstrip('/')}")
    return "\n".join(lines)


def _change(c: Any) -> str:
    path, _, line = c.line.rpartition(":")
    shown = f"…/{path.partition(LIBRARIES)[2]}" if LIBRARIES in path else short_path(path)
    return f"{c.op_class} {c.shape} ({mib(c.output_bytes)}) {c.name}" + (f"  {shown}:{line}" if c.line else "")


def render_verify(r: Any) -> str:
    """What was checked, and every problem by its place."""
    what = f"{counted(r.runs, 'run')}, {counted(r.receipts, 'receipt')}, {counted(r.artefacts, 'artefact')}: "
    head = what + ("all as filed" if r.ok else counted(len(r.problems), "problem"))
    return "\n".join([head, *(f"  {p.where}: {p.what}" for p in r.problems)])


def mib(value: int) -> str:
    """Bytes as MiB, or KiB below one; nothing is 0 B."""
    if value == 0:
        return "0 B"
    return f"{value / 2**20:,.1f} MiB" if value >= 2**20 else f"{value / 1024:,.1f} KiB"
