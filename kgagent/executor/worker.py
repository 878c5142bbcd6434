"""The trusted worker: reads exported programs, compiles, feeds, runs and times them. Candidate Python is never in it.

Runs as `python -m kgagent.executor.worker job.json` under limits; `check` observes for the gates, `time` measures one pair.
Only the lane's reference.py and inputs.py are imported, from copies whose hashes the executor made.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import TracebackType


def main(job_path: str) -> int:
    job = json.loads(Path(job_path).read_text())
    out = Path(job["out"])

    def explain(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """A program that doesn't compile or run ends this process; the note says why."""
        note = {"type": kind.__name__, "message": str(error)}
        (out / "failure.json").write_text(json.dumps(note))
        sys.__excepthook__(kind, error, trace)

    sys.excepthook = explain
    if job["mode"] == "check":
        from kgagent.executor.observe import observe

        observe(job, out)
    else:
        from kgagent.executor.clock import time_pair

        time_pair(job, out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
