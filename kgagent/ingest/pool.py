"""Parses files in this process or in two others, whichever is sooner; results come as they finish."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import kgagent
from kgagent.errors import IngestError
from kgagent.ingest.parse import Task, parse
from kgagent.ingest.shapes import Parsed
from kgagent.ingest.worker import receive, send

# Starting two interpreters costs about 0.15 s: that much source is read here meanwhile.
ALONE_BYTES = 1_500_000
BATCH_BYTES = 200_000
PROCESSES = 2


def parse_all(tasks: Sequence[tuple[Task, int]], processes: int = PROCESSES) -> Iterator[Parsed]:
    """Every task's result, in no particular order; each task comes with its file's size in bytes."""
    if processes < 2 or sum(size for _, size in tasks) <= ALONE_BYTES:
        for task, _ in tasks:
            yield parse(task)
        return
    yield from _in_processes(batches(tasks), processes)


def batches(tasks: Sequence[tuple[Task, int]]) -> list[list[Task]]:
    """Largest files first, so that no process is left with a giant at the end."""
    made: list[list[Task]] = [[]]
    filled = 0
    for task, size in sorted(tasks, key=lambda pair: -pair[1]):
        if filled and filled + size > BATCH_BYTES:
            made.append([])
            filled = 0
        made[-1].append(task)
        filled += size
    return made


def _in_processes(work: list[list[Task]], processes: int) -> Iterator[Parsed]:
    todo: queue.SimpleQueue[list[Task]] = queue.SimpleQueue()
    for batch in work:
        todo.put(batch)
    done: queue.SimpleQueue[list[Parsed] | BaseException] = queue.SimpleQueue()
    workers = [_start() for _ in range(min(processes, len(work)))]
    threads = [threading.Thread(target=_drive, args=(worker, todo, done), daemon=True) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        for _ in work:
            got = done.get()
            if isinstance(got, BaseException):
                raise IngestError("a parsing process died", where=str(got), hint="run it again; if it dies again, kgagent doctor shows free memory") from got
            yield from got
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()


def _start() -> subprocess.Popen[bytes]:
    """A worker that finds this very kgagent, and nothing of the current folder."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(kgagent.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
    }
    argv = [sys.executable, "-P", "-c", "from kgagent.ingest.worker import main; main()"]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True)


def _drive(worker: subprocess.Popen[bytes], todo: queue.SimpleQueue[list[Task]], done: queue.SimpleQueue[list[Parsed] | BaseException]) -> None:
    """Feed one worker until nothing is left; a dead one is reported once for each batch that is missing."""
    assert worker.stdin is not None and worker.stdout is not None
    while True:
        try:
            batch = todo.get_nowait()
        except queue.Empty:
            return
        try:
            send(worker.stdin, batch)
            got = receive(worker.stdout)
        except (OSError, EOFError, ValueError) as error:
            done.put(error)
            return
        done.put(got if got is not None else EOFError(f"worker ended with {worker.poll()}"))
        if got is None:
            return
