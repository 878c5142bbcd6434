"""Run by tests as a program: do an experiment, or go on with what was cut, and be killed at a named step.

`python -m tests.executor.interrupted WORKSPACE IMPL STEP WHEN`: WHEN is "before" (the step's work is done, its result not stored) or "after".
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from kgagent.executor import resume, run_experiment
from kgagent.executor.journal import Journal
from kgagent.graph import open_graph
from kgagent.lanes import load_lane
from kgagent.workspace import Workspace
from tests.executor.toy import propose

finish, close = Journal.finish, Journal.close


def main(home: str, impl: str, step: str, when: str) -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def killed_finish(self: Journal, run: str, name: str, payload: dict[str, Any]) -> None:
        if name == step and when == "before":
            die()
        finish(self, run, name, payload)
        if name == step:
            die()

    def killed_close(self: Journal, run: str) -> None:
        if step == "close" and when == "before":
            die()
        close(self, run)
        if step == "close":
            die()

    Journal.finish, Journal.close = killed_finish, killed_close  # type: ignore[method-assign]
    workspace = Workspace(Path(home))
    with open_graph(workspace, write=True) as graph:
        lane = load_lane(workspace, "toy")
        with Journal(workspace) as journal:
            cut = journal.open_runs()
        if cut:
            resume(graph)
        else:
            run_experiment(graph, lane, propose(graph, lane, impl), progress=lambda line: print(line, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
