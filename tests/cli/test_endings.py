"""However a command is ended, it says so in one line and with its code."""

from __future__ import annotations

import subprocess
import sys

import pytest

ENDED = "import os, signal, time; from kgagent.cli import main as m; m.cli.main = lambda **_: (os.kill(os.getpid(), signal.{name}), time.sleep(20)); m.main()"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("command", ["loop", "ingest"])
def test_a_signal_ends_it_like_ctrl_c(name: str, command: str) -> None:
    code = "import kgagent.cli.main\n" + ENDED.format(name=name)
    done = subprocess.run([sys.executable, "-c", code, command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 130, done.stderr
    assert "interrupted" in done.stderr and "Traceback" not in done.stderr
    assert ("kgagent resume" in done.stderr) == (command == "loop")


def test_what_was_typed_does_not_drive_the_terminal() -> None:
    done = subprocess.run([sys.executable, "-m", "kgagent", "\x1b[2Jingest"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message", "following"),
    [
        (["ingset"], "no command 'ingset'", "did you mean 'ingest'"),
        (["zzz"], "no command 'zzz'", "kgagent --help"),
        (["--bogus"], "--bogus", "kgagent --help"),
        (["show"], "NAME", "kgagent show --help"),
        (["loop", "attention", "-n", "many"], "many", "kgagent loop --help"),
    ],
)
def test_usage_errors_say_what_and_what_next(arguments: list[str], message: str, following: str) -> None:
    done = subprocess.run([sys.executable, "-m", "kgagent", *arguments], capture_output=True, text=True, timeout=60)
    first, second = done.stderr.splitlines()
    assert done.returncode == 2 and done.stdout == ""
    assert first.startswith("error: ") and message in first
    assert second.startswith("  next: ") and following in second
