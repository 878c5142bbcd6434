"""What every section of an answer needs, gathered once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kgagent.ask.compiled import Compile
from kgagent.ask.records import Here
from kgagent.ask.resolve import Subject
from kgagent.ask.trail import Disk, Ground
from kgagent.ask.trials import Trial
from kgagent.graph import Graph


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
    disk: Disk
    unknown: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        return self.subject.label

    def ground(self) -> Ground:
        """A new ground for one finding."""
        return Ground(self.graph, self.disk)
