"""Parses files in this process or in two others, whichever is sooner; one source is resolved while the next is parsed."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import kgagent
from kgagent.errors import IngestError, KgError
from kgagent.ingest.parse import Task, failed, parse
from kgagent.ingest.shapes import Parsed
from kgagent.ingest.worker import receive, send

# Starting two interpreters costs about 0.15 s: that much source is read here meanwhile.
ALONE_BYTES = 1_500_000
BATCH_BYTES = 200_000
PROCESSES = 2
MAX_DEATHS = 3  # of parsing processes; beyond, it is the machine and not a file


class Death(NamedTuple):
    """The end of a parsing process, with the files it held."""

    reason: str
    batch: list[Task]


Sized = tuple[Task, int]  # a task and its file's size in bytes


class Reader:
    """Parses the files of several sources, first source first. Use it in a `with`: leaving ends the processes."""

    def __init__(self, sources: Sequence[Sequence[Sized]], processes: int = PROCESSES) -> None:
        self._sources = sources
        self._waiting = [len(tasks) for tasks in sources]
        self._stash: list[list[Parsed]] = [[] for _ in sources]
        self._workers: list[subprocess.Popen[bytes]] = []
        self._todo: queue.SimpleQueue[tuple[int, list[Task]]] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[int, list[Parsed] | KgError | Death]] = queue.SimpleQueue()
        self.alone = processes < 2 or sum(size for tasks in sources for _, size in tasks) <= ALONE_BYTES
        self._processes = processes
        self._deaths = 0

    def __enter__(self) -> Reader:
        if not self.alone:
            for number, tasks in enumerate(self._sources):
                for batch in batches(tasks):
                    self._todo.put((number, batch))
            for _ in range(self._processes):
                self._hire()
        return self

    def _hire(self) -> None:
        worker = _start()
        self._workers.append(worker)
        threading.Thread(target=_drive, args=(worker, self._todo, self._done), daemon=True).start()

    def _bury(self, owner: int, death: Death) -> None:
        """Read the files a dead process held one by one, by another process; the file that ends that one too is skipped."""
        self._deaths += 1
        if self._deaths > MAX_DEATHS:
            raise IngestError("a parsing process died", where=death.reason, hint="run it again; kgagent doctor shows how much memory is free")
        if len(death.batch) == 1:
            self._stash[owner].append(failed(death.batch[0], "", 0, f"reading it ended the parsing process ({death.reason})"))
        else:
            for task in death.batch:
                self._todo.put((owner, [task]))
        self._hire()

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def results(self, number: int) -> Iterator[Parsed]:
        """The results of one source, in no particular order."""
        if self.alone:
            for task, _ in self._sources[number]:
                yield parse(task)
            return
        while self._waiting[number]:
            while self._stash[number]:
                self._waiting[number] -= 1
                yield self._stash[number].pop()
            if self._waiting[number]:
                owner, got = self._done.get()
                if isinstance(got, KgError):
                    raise got
                if isinstance(got, Death):
                    self._bury(owner, got)
                else:
                    self._stash[owner] += got


def batches(tasks: Sequence[Sized]) -> list[list[Task]]:
    """Largest files first, so that no process is left with a giant at the end."""
    made: list[list[Task]] = []
    filled = BATCH_BYTES
    for task, size in sorted(tasks, key=lambda pair: -pair[1]):
        if filled + size > BATCH_BYTES:
            made.append([])
            filled = 0
        made[-1].append(task)
        filled += size
    return made


def _start() -> subprocess.Popen[bytes]:
    """A worker that finds this very kgagent, and nothing of the current folder."""
    here = str(Path(kgagent.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in (here, os.environ.get("PYTHONPATH", "")) if part)}
    argv = [sys.executable, "-P", "-c", "from kgagent.ingest.worker import main; main()"]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True)


def _drive(
    worker: subprocess.Popen[bytes],
    todo: queue.SimpleQueue[tuple[int, list[Task]]],
    done: queue.SimpleQueue[tuple[int, list[Parsed] | KgError | Death]],
) -> None:
    """Feed one worker until nothing is left; a dead one is reported with the batch it took along."""
    assert worker.stdin is not None and worker.stdout is not None
    while True:
        try:
            number, batch = todo.get_nowait()
        except queue.Empty:
            return
        try:
            send(worker.stdin, batch)
            got = receive(worker.stdout)
        except (OSError, EOFError, ValueError) as error:
            done.put((number, Death(str(error), batch)))
            return
        if got is None:
            done.put((number, Death(f"it ended with {worker.wait()}", batch)))
            return
        done.put((number, got))
