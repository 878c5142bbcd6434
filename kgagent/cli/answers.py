"""An Answer as text for a terminal."""

from __future__ import annotations

import textwrap

from kgagent.ask import Answer, Citation
from kgagent.cli.output import short_path

WIDTH = 110


def render_answer(answer: Answer) -> str:
    """Findings numbered, strongest first, each with where it stands; then what isn't known."""
    here = answer.here
    lines = []
    if answer.subject is not None:
        place = ", ".join(n.name if n.kind != "scope" else n.id for n in (here.lane, here.scope, here.frontier) if n is not None)
        lines.append(f"about {answer.subject.id}" + (f"; here: {place}" if place else "") + (f"; compiled for {here.topology}" if here.topology else ""))
    for number, finding in enumerate(answer.findings, 1):
        lines += ["", _wrapped(f"{number}. [{finding.strength}] {finding.text}", "   ")]
        lines += [f"     {_place(c)}" for c in finding.citations]
    if answer.unknown:
        lines += ["", "Not known"]
        lines += [_wrapped(f"- {text}", "  ") for text in answer.unknown]
    if answer.also:
        lines += ["", "The words fit as well: " + ", ".join(n.id for n in answer.also)]
    if answer.nearest:
        lines += ["", "Nearest: " + ", ".join(n.id for n in answer.nearest)]
    lines += [f"note: {note}" for note in answer.notes]
    return "\n".join(lines).lstrip("\n")


def _place(citation: Citation) -> str:
    end = f"-{citation.end_line}" if citation.end_line != citation.line else ""
    return f"{short_path(citation.path)}:{citation.line}{end}" + (f"  {citation.note}" if citation.note else "")


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
