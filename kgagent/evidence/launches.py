"""Which ingested kernel a custom call launches: by the launching line, by the body's own lines, or by name alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kgagent.evidence.frames import Frame
from kgagent.evidence.lines import Symbols
from kgagent.evidence.mosaic import KernelBody
from kgagent.graph.store import Graph


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel with how surely it is the one."""

    kernel: str
    how: str  # exact, inferred, candidate
    because: str


def launched_kernel(graph: Graph, symbols: Symbols, frames: tuple[Frame, ...], body: KernelBody | None, name: str) -> Launch | None:
    """The kernel node, or None where no ingested kernel fits."""
    return _by_launch_line(graph, symbols, frames) or _by_body(graph, symbols, body) or _by_name(graph, body, name)


def _by_launch_line(graph: Graph, symbols: Symbols, frames: tuple[Frame, ...]) -> Launch | None:
    """A frame of the call spans the `pallas_call`; innermost frames come first."""
    for frame in frames:
        found = symbols.file(frame.file)
        if found is None:
            continue
        rows = graph.rows(
            """SELECT n.id FROM kernel k JOIN node n ON n.key = k.key WHERE k.launch_file = ? AND k.launch_line BETWEEN ? AND ?
               ORDER BY k.launch_line LIMIT 1""",
            found[0], frame.line, max(frame.line, frame.end_line),
        )  # fmt: skip
        if rows:
            return Launch(rows[0][0], found[1], f"launched at {frame.place}")
    return None


def _by_body(graph: Graph, symbols: Symbols, body: KernelBody | None) -> Launch | None:
    """Most of the body's lines lie in one ingested body function."""
    votes: Counter[str] = Counter()
    for frame in body.frames if body else ():
        found = symbols.file(frame.file)
        if found is None:
            continue
        rows = graph.rows(
            """SELECT n.id FROM kernel k JOIN node n ON n.key = k.key JOIN node b ON b.key = k.body
               WHERE b.file = ? AND b.line_start <= ? AND b.line_end >= ? LIMIT 2""",
            found[0], frame.line, frame.line,
        )  # fmt: skip
        if len(rows) == 1:  # a body launched from several places tells nothing
            votes[str(rows[0][0])] += 1
    if not votes:
        return None
    kernel, count = votes.most_common(1)[0]
    return Launch(kernel, "inferred", f"{count} lines of the body")


def _by_name(graph: Graph, body: KernelBody | None, name: str) -> Launch | None:
    """Exactly one kernel has a wrapper or body of that name."""
    for wanted in dict.fromkeys(part for part in (body.name if body else "", name) if part):
        rows = graph.rows(
            """SELECT n.id FROM kernel k JOIN node n ON n.key = k.key LEFT JOIN node w ON w.key = k.wrapper LEFT JOIN node b ON b.key = k.body
               WHERE b.name = ? OR w.name = ? LIMIT 2""",
            wanted, wanted,
        )  # fmt: skip
        if len(rows) == 1:
            return Launch(rows[0][0], "candidate", f"named {wanted}")
    return None
