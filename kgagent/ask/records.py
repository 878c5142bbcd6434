"""What an answer is made of: frozen records that every face renders, so that none of them gathers evidence itself."""

from __future__ import annotations

from dataclasses import dataclass

from kgagent.graph import Node


@dataclass(frozen=True, slots=True)
class Citation:
    """A place that existed on disk when the question was answered; `node` is what stands there, `note` what is seen there."""

    path: str
    line: int
    end_line: int
    node: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing the graph says; without the edges in `edges` it would not be said. `triples` are the same edges, readable."""

    kind: str
    text: str
    strength: str  # measured on tpu, predicted, source, detected, measured on cpu, stated, open
    nodes: tuple[str, ...]
    citations: tuple[Citation, ...]
    edges: tuple[int, ...]
    triples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Here:
    """What "here" was taken to mean; `chosen_by` says how the lane was picked."""

    lane: Node | None
    scope: Node | None
    frontier: Node | None
    frontier_speedup: float | None  # against the lane's reference
    topology: str  # the TPU topology compiled for last, '' when none
    chosen_by: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Findings strongest first; `unknown` is what was looked for and not there, `nearest` what the words may have meant."""

    question: str
    subject: Node | None
    here: Here
    findings: tuple[Finding, ...]
    unknown: tuple[str, ...]
    nearest: tuple[Node, ...]
    also: tuple[Node, ...] = ()  # other things the words fit equally well
    notes: tuple[str, ...] = ()  # what was dropped or may be stale, and why
