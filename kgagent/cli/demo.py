"""`kgagent demo`: run the main job and say what to open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kgagent.cli.answers import short_ids, wrapped
from kgagent.cli.output import Progress, State, emit, json_option, short_path
from kgagent.cli.reports import render_preflight, render_report, render_verify


@click.command()
@click.option("-n", "--experiments", default=5, show_default=True, type=click.IntRange(2, 50))
@json_option
@click.pass_obj
def demo(state: State, experiments: int, as_json: bool) -> None:
    """Run the main job end to end in a fresh workspace (default: ./demo-workspace)."""
    from kgagent.demo import run_demo

    with Progress(as_json) as progress:
        report = run_demo(state.explicit or Path("demo-workspace"), experiments=experiments, progress=progress)
    emit(report, as_json, _render)
    verdicts = {r.verdict for r in report.loop.reports}
    if not report.verified.ok or "supported" not in verdicts or not verdicts & {"refuted", "inconclusive"}:
        raise click.exceptions.Exit(1)


def _render(report: Any) -> str:
    lines = ["", f"Done in {report.seconds:.0f} s, in {short_path(report.workspace)}", "", "Ingested"]
    lines += [f"  {line}" for line in report.sources]
    lines.append(f"  {report.mentions:,} places linked to concepts")
    lines += ["", "Experiments (CPU; every number has a receipt)"]
    lines += [f"  {line}" for r in report.loop.reports for line in render_report(r).splitlines()[:3]]
    lines.append(f"  frontier: {report.loop.frontier}")
    lines += ["", "TPU compiler, no TPU"]
    lines += [f"  {line}" for line in (render_preflight(report.preflight) if report.preflight else f"not done: {report.preflight_missing}").splitlines()]
    lines += ["", f"“{report.answer.question}”"]
    lines += [wrapped(f"  {n}. {short_ids(f.text)}", "     ") for n, f in enumerate(report.answer.findings[:4], 1)]
    if len(report.answer.findings) > 4:
        lines.append(f'  … and {len(report.answer.findings) - 4} more: kgagent -w {short_path(report.workspace)} why "{report.answer.question}"')
    lines += ["", f"Receipts: {render_verify(report.verified)}", f"Wiki: {report.pages} pages", "", "Open"]
    lines += [f"  {short_path(path)}  {what}" for what, path in report.open]
    return "\n".join(lines)
