"""Limits kill what they must, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kgagent.errors import Unavailable, UsageError
from kgagent.process import run_limited

IGNORE = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
FORK_AND_SLEEP = (
    IGNORE
    + """import os, sys, time
if os.fork() == 0:
    {leave}
    open(sys.argv[1], 'w').write(str(os.getpid()))
    time.sleep(60)
{parent}"""
)
FORK_AND_HOARD = """import os, time
for _ in range(3):
    if os.fork() == 0:
        held = b'z' * (120 * 2**20)
        time.sleep(9)
time.sleep(9)"""


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_ends_by_itself() -> None:
    done = run_limited(python("import sys; print(sys.stdin.read()); print('e', file=sys.stderr); sys.exit(3)"), wall_s=20, stdin=b"hello")
    assert (done.returncode, done.stdout, done.stderr, done.killed_by) == (3, "hello\n", "e\n", "")


@pytest.mark.parametrize(
    ("code", "limits", "killed_by"),
    [
        (IGNORE + "while True: pass", {"wall_s": 0.5}, "timeout"),
        ("import sys\nfor _ in range(2**20): sys.stdout.write('x' * 1024)", {"wall_s": 20, "output_kb": 64}, "output"),
        ("import os\nwhile True: os.write(2, b'y' * 4096)", {"wall_s": 20, "output_kb": 64}, "output"),
        ("a = []\nwhile True: a.append(b'z' * 2**24)", {"wall_s": 20, "memory_mb": 300}, "memory"),
        (FORK_AND_HOARD, {"wall_s": 20, "memory_mb": 300}, "memory"),
    ],
    ids=["hangs", "floods", "floods-slowly", "hoards", "hoards-in-children"],
)
def test_limits_kill(code: str, limits: dict[str, float], killed_by: str) -> None:
    started = time.monotonic()
    done = run_limited(python(code), **limits)  # type: ignore[arg-type]
    assert done.killed_by == killed_by
    assert len(done.stdout) + len(done.stderr) <= 64 * 1024
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("leave", ["pass", "os.setsid()", "os.setsid() if os.fork() == 0 else os._exit(0)"], ids=["session", "own-session", "daemon"])
@pytest.mark.parametrize("parent", ["time.sleep(60)", "time.sleep(0.4)"], ids=["parent-stays", "parent-leaves"])
def test_grandchildren_die(tmp_path: Path, leave: str, parent: str) -> None:
    note = tmp_path / "pid"
    started = time.monotonic()
    run_limited(python(FORK_AND_SLEEP.format(leave=leave, parent=parent), str(note)), wall_s=1.0)
    assert time.monotonic() - started < 5
    assert not alive(int(note.read_text()))


def test_own_process_survives_its_own_mark() -> None:
    outer = "from kgagent.process import run_limited; import sys; print(run_limited([sys.executable, '-c', 'print(1)'], wall_s=9).stdout)"
    assert run_limited(python(outer), wall_s=20).stdout == "1\n\n"


def test_missing_program_and_folder(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no program"):
        run_limited(["kgagent-no-such-program"], wall_s=1)
    with pytest.raises(UsageError, match="folder"):
        run_limited([sys.executable], cwd=tmp_path / "absent", wall_s=1)


def test_environment_is_replaced() -> None:
    done = run_limited(python("import os; print(sorted(os.environ))"), wall_s=9, env={"ONLY": "1", "PATH": os.environ["PATH"]})
    assert "'ONLY'" in done.stdout and "'HOME'" not in done.stdout


OWNER = """import sys
from kgagent.process import run_limited
run_limited([sys.executable, '-c', "import sys, os, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)", sys.argv[1]], wall_s=60)"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_it_runs_dies_with_its_owner(tmp_path: Path, how: signal.Signals) -> None:
    note = tmp_path / "pid"
    owner = subprocess.Popen(python(OWNER, str(note)))
    deadline = time.monotonic() + 20
    while not (note.exists() and note.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    owner.send_signal(how)
    owner.wait(timeout=20)
    deadline = time.monotonic() + 5
    while alive(int(note.read_text())):
        assert time.monotonic() < deadline, "the program outlived its owner"
        time.sleep(0.01)


def test_the_guardian_ends_with_the_run(tmp_path: Path) -> None:
    done = run_limited(python("pass"), wall_s=20)
    assert done.returncode == 0
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert not [pid for pid in children if b"kgagent-guard" in Path(f"/proc/{pid}/cmdline").read_bytes()]
