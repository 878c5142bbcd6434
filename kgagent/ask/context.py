"""What every section of an answer needs, gathered once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kgagent.ask.compiled import Compile
from kgagent.ask.records import Here
from kgagent.ask.resolve import Subject
from kgagent.ask.trail import Disk, Ground
from kgagent.ask.trials import Trial, matches
from kgagent.graph import Edge, Graph, Node


@dataclass(frozen=True, slots=True)
class Context:
    """One question on its way to an answer; `unknown` collects what was looked for and not there."""

    graph: Graph
    here: Here
    subject: Subject
    against: Subject | None
    compiles: Sequence[Compile]
    trials: Sequence[Trial]
    against_trials: Sequence[Trial]
    trial_count: int  # experiments there are, of which `trials` holds the foremost
    disk: Disk
    unknown: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        return self.subject.label

    def note(self, text: str) -> None:
        """Say something about the answer itself: what was left out or dropped."""
        self.disk.notes[text] = None

    def interpreted(self, trial: Trial) -> tuple[Edge, ...]:
        """The edges that say a trial ran a TPU kernel through the interpreter: off a TPU a Mosaic TPU kernel runs in no other way."""
        if trial.on_tpu:
            return ()
        if trial.interpreted:
            return trial.interpreted
        pulled = {lever.node.id for lever in self.subject.levers if matches(trial.knobs, lever)}
        for link in self.subject.kernels:
            if link.path and link.path[0].src in pulled and self._backend(link.node) == "mosaic_tpu":
                return link.path
        return ()

    def _backend(self, kernel: Node) -> str:
        return str(self.graph.value("SELECT backend FROM kernel WHERE key = ?", kernel.key) or "")

    def ground(self) -> Ground:
        """A new ground for one finding."""
        return Ground(self.graph, self.disk)
