"""The demo replaces only what a demo made, whenever that one was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgagent import demo
from kgagent.errors import UsageError


class Killed(BaseException):
    """What no handler catches."""


def killed_demo(root: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(demo, step, die)
        demo.run_demo(root)


@pytest.mark.parametrize("step", ["initialise", "open_graph", "learn"])
def test_a_demo_killed_at_any_moment_is_set_aside_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    root = tmp_path / "demo"
    for _ in range(3):
        killed_demo(root, monkeypatch, step)
    assert (tmp_path / "demo.previous").is_dir()


def test_what_no_demo_made_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, previous = tmp_path / "demo", tmp_path / "demo.previous"
    previous.mkdir()
    (previous / "mine.txt").write_text("years of work")
    killed_demo(root, monkeypatch, "learn")
    with pytest.raises(UsageError, match="not of the demo's making") as caught:
        demo.run_demo(root)
    assert str(previous) in caught.value.where
    assert (previous / "mine.txt").read_text() == "years of work"
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("more")
    with pytest.raises(UsageError, match="left alone"):
        demo.run_demo(other)
    assert (other / "mine.txt").read_text() == "more"
