"""What goes wrong while a lane is traced is told by its file; what a candidate says can neither hang nor paint."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from kgagent.errors import CandidateError
from kgagent.lanes import load_lane, trace
from kgagent.workspace import Workspace
from tests.executor.toy import write_toy

pytestmark = pytest.mark.skipif(importlib.util.find_spec("jax") is None or importlib.util.find_spec("flatbuffers") is None, reason="jax isn't installed")

NOTE = "import os, sys\nfrom pathlib import Path\nnote = Path.cwd() / 'out' / 'failure.json'\n"
FIFO = NOTE + "os.mkfifo(note)\nos._exit(1)\n"
LINK = NOTE + "os.symlink('/dev/zero', note)\nos._exit(1)\n"
PAINTS = "raise ValueError('\\x1b[2J\\x1b]0;owned\\x07 gone')\n"


@pytest.mark.parametrize(
    ("file", "text", "outcome", "told"),
    [
        ("candidate.py", "x = 1\n", "refused", "candidate.py defines no function candidate()"),
        ("candidate.py", "def candidate(:\n", "crashed", "candidate.py:1: SyntaxError"),
        ("candidate.py", FIFO, "crashed", "ended with 1"),
        ("candidate.py", LINK, "crashed", "ended with 1"),
        ("candidate.py", PAINTS, "crashed", "candidate.py:1: ValueError"),
    ],
    ids=["no function", "syntax", "note is a pipe", "note is a link", "control characters"],
)
def test_a_bad_candidate_is_told(workspace: Workspace, file: str, text: str, outcome: str, told: str) -> None:
    write_toy(workspace)
    (workspace.lanes / "toy" / file).write_text(text)
    traced = trace(load_lane(workspace, "toy"), {"impl": "dot"})
    assert traced.outcome == outcome and told in traced.message, traced
    assert traced.message.isprintable()


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("reference.py", "def reference(x, w):\n    raise ValueError('odd')\n", "reference can't be traced: reference.py:2: ValueError: odd"),
        ("inputs.py", "import jax\ndef inputs(seed, op_point):\n    return jax.numpy.ones(3)\n", "must return a tuple"),
        ("inputs.py", "x = 1\n", "inputs.py defines no function inputs()"),
    ],
)
def test_a_bad_reference_is_told_as_one(workspace: Workspace, file: str, text: str, told: str, tmp_path: Path) -> None:
    write_toy(workspace)
    (workspace.lanes / "toy" / file).write_text(text)
    with pytest.raises(CandidateError) as caught:
        trace(load_lane(workspace, "toy"), None).need()
    assert told in caught.value.what
    assert "reference.py" in caught.value.hint
