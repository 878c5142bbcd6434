"""A parsing process: length-framed pickles of tasks on stdin, of results on stdout, until stdin closes.

Why not multiprocessing: its spawned children import the caller's main module again, which a script without a guard or a
program read from stdin does not survive. These are our own processes, started by us, so pickle crosses no trust boundary.
"""

from __future__ import annotations

import gc
import pickle
import struct
import sys
from typing import IO, Any

HEADER = struct.Struct("<Q")


def send(stream: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    stream.write(HEADER.pack(len(data)))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """The next value, or None when the other side is gone."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    return pickle.loads(stream.read(HEADER.unpack(header)[0]))


def main() -> None:
    from kgagent.errors import KgError
    from kgagent.ingest.parse import parse

    gc.disable()  # a batch's tuples hold no cycles, and the process lives for seconds
    while (tasks := receive(sys.stdin.buffer)) is not None:
        try:
            send(sys.stdout.buffer, [parse(task) for task in tasks])
        except KgError as error:  # a full disk, say: told by the process a person sees
            send(sys.stdout.buffer, error)
