"""An Answer as text for a terminal."""

from __future__ import annotations

import re
import textwrap

from kgagent.ask import Answer, Citation
from kgagent.cli.output import short_path, text_width

SHOWN_NOTES = 4  # --json has all


def render_answer(answer: Answer) -> str:
    """Findings numbered, strongest first, each with where it stands; then what isn't known."""
    here = answer.here
    lines = []
    if answer.subject is not None:
        place = ", ".join(n.name if n.kind != "scope" else n.id for n in (here.lane, here.scope, here.frontier) if n is not None)
        head = f"about {answer.subject.id}" + (f"; here: {place}" if place else "") + (f"; compiled for {here.topology}" if here.topology else "")
        lines.append(wrapped(head, "   "))
    for number, finding in enumerate(answer.findings, 1):
        lines += ["", wrapped(f"{number}. [{finding.strength}] {short_ids(finding.text)}", "   ")]
        lines += _places(finding.citations)
    if answer.unknown:
        lines += ["", "Not known"]
        lines += [wrapped(f"- {text}", "  ") for text in answer.unknown]
    if answer.nearest:
        lines += ["", wrapped("Nearest: " + ", ".join(n.id for n in answer.nearest), "   ")]
    lines += [wrapped(f"note: {note}", "  ") for note in answer.notes]
    return "\n".join(lines).lstrip("\n")


def _places(citations: tuple[Citation, ...]) -> list[str]:
    """Citations grouped by file, so that a long path stands once."""
    files: dict[str, list[Citation]] = {}
    for citation in citations:
        files.setdefault(citation.path, []).append(citation)
    lines = []
    for path, places in files.items():
        if len(places) == 1:
            lines.append(f"     {short_path(path)}:{_span(places[0])}  {_note(places[0])}".rstrip())
            continue
        lines.append(f"     {short_path(path)}")
        lines += [f"       :{_span(c):<10} {_note(c)}".rstrip() for c in places]
    return lines


def _span(citation: Citation) -> str:
    return str(citation.line) if citation.end_line == citation.line else f"{citation.line}-{citation.end_line}"


def _note(citation: Citation) -> str:
    """What is seen there; of many instructions from one line the first few."""
    parts = citation.note.split(", ")
    most = SHOWN_NOTES if len(parts) > SHOWN_NOTES + 1 and parts[0].count(" ") == 1 else len(parts)
    return ", ".join(parts[:most]) + (f" and {len(parts) - most} more" if most < len(parts) else "")


def short_ids(text: str) -> str:
    """A kernel's id ends in its name; the rest is its module, which the citations show."""
    return re.sub(r"\bkernel:\S*/([\w~]+)", r"\1", text)


def wrapped(text: str, indent: str) -> str:
    """Prose folded to the terminal, further lines indented."""
    return textwrap.fill(text, text_width(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
