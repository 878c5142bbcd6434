"""Run a program under limits that kill: wall time, memory and output, its grandchildren included.

Why not subprocess's own timeout: it kills one process and waits for pipes that a grandchild may hold open for ever.
A guardian kills the program's session when kgagent itself is killed: what nobody limits any more must not go on running.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kgagent.errors import Unavailable, UsageError

MARK = "KGAGENT_RUN"  # every descendant inherits it, also one that left the session
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
PROC = Path("/proc")
CHUNK_BYTES = 65536
SLOWEST_POLL_S = 0.05
SWEEPS = 20  # a fork bomb may outrun one sweep
SHELL = "/bin/sh"
GUARD = 'read -r _; kill -s KILL -- -"$1"'  # its input ends when kgagent does, however that happens


@dataclass(frozen=True, slots=True)
class Finished:
    """How a limited run ended; `killed_by` is '' where it ended by itself."""

    returncode: int
    stdout: str
    stderr: str
    wall_s: float
    killed_by: str  # '' | 'timeout' | 'output' | 'memory'


def run_limited(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    wall_s: float,
    memory_mb: int | None = None,
    output_kb: int = 1024,
    file_mb: int | None = None,
    stdin: bytes = b"",
) -> Finished:
    """Run to the end or to the first limit met; nothing it started is alive afterwards.

    `env` replaces the environment (None: inherit). Memory is the resident sum of all its processes; output is both streams together;
    `file_mb` bounds each file it writes (a longer write fails there).
    """
    started = time.monotonic()
    mark = uuid.uuid4().hex
    child_env = {**(os.environ if env is None else env), MARK: mark}
    child = _start(argv, cwd, child_env)
    guardian: subprocess.Popen[bytes] | None = None
    threads: list[threading.Thread] = []
    try:
        guardian = _guard(child.pid)
        _bound_files(child.pid, file_mb)
        output = _Output(output_kb * 1024)
        threads = [threading.Thread(target=output.drain, args=(pipe, index), daemon=True) for index, pipe in enumerate((child.stdout, child.stderr)) if pipe]
        threads.append(threading.Thread(target=_feed, args=(child, stdin), daemon=True))
        for thread in threads:
            thread.start()
        killed_by = _watch(child, mark, output, started + wall_s, memory_mb)
    finally:
        kill_tree(child.pid, mark)
        if guardian is not None:
            guardian.kill()  # before the child's number is free for another process
            guardian.communicate()
        child.wait()
        for thread in threads:
            thread.join(timeout=1.0)
    return Finished(child.returncode, output.text(0), output.text(1), time.monotonic() - started, killed_by)


def _start(argv: Sequence[str], cwd: Path | None, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(argv), cwd=cwd, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except FileNotFoundError as error:
        if cwd is not None and not cwd.is_dir():
            raise UsageError("no such folder to run in", where=str(cwd)) from error
        raise Unavailable(f"no program {argv[0]!r} on this machine", hint="install it, or put it on PATH") from error
    except OSError as error:
        raise Unavailable(f"can't start {argv[0]!r}: {error.strerror or error}") from error


def _guard(session: int) -> subprocess.Popen[bytes] | None:
    """A shell that waits for this process to end and then kills the session; None on a machine without a shell."""
    try:
        return subprocess.Popen(
            [SHELL, "-c", GUARD, "kgagent-guard", str(session)],
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None


class _Output:
    """Both streams, kept up to a limit; reading goes on past it so that the writer never blocks before it is killed."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.kept: tuple[list[bytes], list[bytes]] = ([], [])
        self.seen_bytes = 0
        self.lock = threading.Lock()

    @property
    def flooded(self) -> bool:
        return self.seen_bytes > self.limit_bytes

    def drain(self, stream: IO[bytes], index: int) -> None:
        while chunk := os.read(stream.fileno(), CHUNK_BYTES):
            with self.lock:
                room = self.limit_bytes - self.seen_bytes
                self.seen_bytes += len(chunk)
                if room > 0:
                    self.kept[index].append(chunk[:room])

    def text(self, index: int) -> str:
        with self.lock:
            return b"".join(self.kept[index]).decode("utf-8", errors="replace")


def _feed(child: subprocess.Popen[bytes], data: bytes) -> None:
    """Standard input in its own thread: a child that never reads must not block the watcher."""
    if child.stdin is None:
        return
    try:
        with child.stdin as stream:
            stream.write(data)
    except (BrokenPipeError, ValueError):
        return


def _watch(child: subprocess.Popen[bytes], mark: str, output: _Output, deadline: float, memory_mb: int | None) -> str:
    """Wait for the end or a limit; polling starts fine so that short programs aren't slowed."""
    poll_s = 0.002
    while True:
        try:
            child.wait(timeout=poll_s)
            return "output" if output.flooded else ""
        except subprocess.TimeoutExpired:
            pass
        if output.flooded:
            return "output"
        if time.monotonic() > deadline:
            return "timeout"
        if memory_mb is not None and poll_s >= SLOWEST_POLL_S and resident_bytes(child.pid, mark) > memory_mb * 2**20:
            return "memory"
        poll_s = min(poll_s * 2, SLOWEST_POLL_S)


def _bound_files(pid: int, file_mb: int | None) -> None:
    """Bound what it writes to disk, core dumps included: a killed JAX process would leave gigabytes behind."""
    import resource

    if not hasattr(resource, "prlimit"):
        return
    limits = [(resource.RLIMIT_CORE, 0)] + ([(resource.RLIMIT_FSIZE, file_mb * 2**20)] if file_mb is not None else [])
    for which, most in limits:
        try:
            resource.prlimit(pid, which, (most, most))
        except (ProcessLookupError, PermissionError):
            return


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    parent: int
    session: int
    state: str
    resident_bytes: int


def kill_tree(pid: int, mark: str) -> None:
    """SIGKILL a process with all that it started, repeating until none is left: SIGTERM may be ignored."""
    for _ in range(SWEEPS):
        alive = [process for process in _family(pid, mark) if process.state != "Z"]
        if not alive:
            return
        for process in alive:
            try:
                os.kill(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        time.sleep(0.01)


def resident_bytes(pid: int, mark: str) -> int:
    """Memory that a process and all that it started hold now; shared pages count once a process."""
    return sum(process.resident_bytes for process in _family(pid, mark))


def _family(pid: int, mark: str) -> list[_Process]:
    """The process, its session, its descendants, and whoever carries its mark after leaving both."""
    table = _processes()
    members = {process.pid for process in table if process.pid == pid or process.session == pid or _marked(process.pid, mark)}
    grew = True
    while grew:
        found = {process.pid for process in table if process.parent in members} - members
        members |= found
        grew = bool(found)
    members.discard(os.getpid())
    return [process for process in table if process.pid in members]


def _marked(pid: int, mark: str) -> bool:
    try:
        return f"{MARK}={mark}".encode() in (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False


def _processes() -> list[_Process]:
    if (PROC / "self" / "stat").exists():
        return [process for entry in os.listdir(PROC) if entry.isdigit() and (process := _read_stat(entry)) is not None]
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,rss="], capture_output=True, text=True, check=False).stdout
    rows = [line.split() for line in listing.splitlines()]
    return [_Process(int(row[0]), int(row[1]), int(row[2]), row[3][:1], int(row[4]) * 1024) for row in rows if len(row) == 5]


def _read_stat(entry: str) -> _Process | None:
    try:
        text = (PROC / entry / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before it may hold spaces and brackets
    return _Process(int(entry), int(fields[1]), int(fields[3]), fields[0], int(fields[21]) * PAGE_BYTES)
