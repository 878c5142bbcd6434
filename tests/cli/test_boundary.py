"""The outermost boundary: exit codes, one clear message, quick reads, imports paid where they are used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kgagent.cli.main import COMMANDS, guarded
from kgagent.graph import NewEdge, NewNode, open_graph
from kgagent.workspace import Workspace

HEAVY = ("jax", "networkx", "textual", "pydantic_ai")


def kgagent(*arguments: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "kgagent", *arguments], capture_output=True, text=True, timeout=timeout_s)


@pytest.fixture
def filled(workspace: Workspace) -> Workspace:
    with open_graph(workspace, write=True) as graph:
        graph.put_nodes([NewNode("concept:splash-attention", "concept", "Splash attention", "test"), NewNode("sym:a.splash", "symbol", "splash", "test")])
        graph.put_edges([NewEdge("sym:a.splash", "mentions", "concept:splash-attention", "test", how="detector")])
    return workspace


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded([command, "--help"]) == 0
    assert "Usage: kgagent" in capsys.readouterr().out


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_stands_in_the_readme(command: str) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert f"kgagent {command}" in readme or f"`{command}`" in readme


READS = [
    ["--help"],
    ["show", "concept:splash-attention"],
    ["find", "splash"],
    ["why", "why is splash fast here"],
    ["neighbors", "sym:a.splash"],
    ["kernels", "--help"],
]


@pytest.mark.parametrize("arguments", READS, ids=lambda a: a[0])
def test_a_read_pays_for_nothing_heavy(filled: Workspace, arguments: list[str]) -> None:
    call = f"guarded({['-w', str(filled.root), *arguments]!r})"
    code = f"import sys; from kgagent.cli.main import guarded; {call}; print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[-1] == "[]", done.stderr


@pytest.mark.parametrize("arguments", [["show", "concept:splash-attention"], ["find", "splash"]], ids=lambda a: a[0])
def test_a_read_takes_half_a_second(filled: Workspace, arguments: list[str]) -> None:
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        kgagent("-w", str(filled.root), *arguments)
        seconds.append(time.perf_counter() - started)
    assert min(seconds) <= 0.5


FAILURES = [
    (["show", "concept:nothing"], 2, "no node"),
    (["find", "zzzzqqq"], 2, "nothing matches"),
    (["nosuch"], 2, "no command"),
    (["show"], 2, "Missing argument"),
    (["plan", "nolane"], 2, "lane"),
    (["ingest", "pkg:no_such_package_here"], 2, "no_such_package_here"),
    (["ingest", "/no/such/folder"], 2, "/no/such/folder"),
    (["run", "attention", "--set", "block_q"], 2, "NAME=VALUE"),
    (["verify", "exp:attention/9999"], 2, "9999"),
    (["why", "the"], 2, ""),
    (["kernels"], 2, "no kernels"),
    (["flame", "x", "-o", "/no/such/folder/x.svg"], 2, "no folder /no/such/folder"),
    (["flame", "x", "-o", "x.png"], 2, "neither .svg nor .json"),
    (["find", "splash", "--kind", "bogus"], 2, "kind 'bogus'"),
    (["neighbors", "sym:a.splash", "--to", "sym:a.splash"], 2, "both ends"),
    (["neighbors", "sym:a.splash", "--to", "concept:splash-attention", "--type", "calls"], 2, "along calls"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), FAILURES, ids=lambda v: " ".join(v) if isinstance(v, list) else None)
def test_failures_have_one_message_and_a_code(filled: Workspace, arguments: list[str], code: int, message: str) -> None:
    done = kgagent("-w", str(filled.root), *arguments)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_no_workspace_says_how_to_make_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kgagent", "find", "x"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "KGAGENT_WORKSPACE"},
    )
    assert done.returncode == 2
    assert "kgagent init" in done.stderr


def test_json_is_the_whole_record(filled: Workspace) -> None:
    done = kgagent("-w", str(filled.root), "neighbors", "sym:a.splash", "--json")
    assert json.loads(done.stdout)["neighbors"][0]["node"]["id"] == "concept:splash-attention"


def test_a_closed_pipe_is_no_failure(filled: Workspace) -> None:
    done = subprocess.run(f"{sys.executable} -m kgagent -w {filled.root} show concept:splash-attention | head -0", shell=True, capture_output=True, text=True)
    assert "Traceback" not in done.stderr


def test_a_name_stands_for_its_node(filled: Workspace) -> None:
    assert "concept:splash-attention" in kgagent("-w", str(filled.root), "show", "Splash attention").stdout


def test_another_name_for_a_class_is_not_another_class(filled: Workspace) -> None:
    with open_graph(filled, write=True) as graph:
        graph.put_nodes(
            [
                NewNode("sym:a.Config", "symbol", "Config", "test", data={"kind": "class"}),
                NewNode("sym:b.Config", "symbol", "Config", "test", data={"kind": "constant"}),
            ]
        )
    assert kgagent("-w", str(filled.root), "show", "Config").stdout.startswith("sym:a.Config")


def test_completion_scripts() -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_KGAGENT_COMPLETE" in kgagent("completion", shell).stdout


def test_a_damaged_config_names_the_file(filled: Workspace) -> None:
    (filled.root / "kgagent.toml").write_text("lane = [")
    done = kgagent("-w", str(filled.root), "why", "why is splash fast")
    assert done.returncode == 2
    assert "kgagent.toml" in done.stderr


def test_init_twice_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "w"
    assert kgagent("-w", str(root), "init").returncode == 0
    page = next((root / "wiki/concepts").glob("*.md"))
    page.write_text("mine")
    before = {p: p.read_bytes() for p in sorted(root.rglob("*.md")) + sorted(root.rglob("*.toml"))}
    assert kgagent("-w", str(root), "init").returncode == 0
    assert {p: p.read_bytes() for p in before} == before
