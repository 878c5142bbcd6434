"""sources, forget, flags and kernels --json, through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgagent.cli.main import guarded
from kgagent.ingest import flags
from kgagent.workspace import Workspace

SETTINGS = """import os
os.environ["LIBTPU_INIT_ARGS"] = "--xla_tpu_scoped_vmem_limit_kib=65536 --xla_jf_conv_reshape=true --xla_tpu_no_such_thing=1"

def more():
    return {"xla_tpu_scoped_vmem_limit_kib": "98304"}
"""
LIBRARY = flags.Library("9.9", frozenset({"xla_tpu_scoped_vmem_limit_kib", "xla_tpu_conv_reshape"}))


@pytest.fixture
def ingested(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Workspace:
    """Two small sources and a libtpu that knows two flags."""
    for name, text in {"first/__init__.py": "", "first/settings.py": SETTINGS, "second/__init__.py": "def f():\n    return g()\n"}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr("kgagent.ingest.lookup.library", lambda workspace: LIBRARY)
    assert run(workspace, "ingest", str(tmp_path / "first"), str(tmp_path / "second")) == 0
    capsys.readouterr()
    return workspace


def run(workspace: Workspace, *arguments: str) -> int:
    return guarded(["-w", str(workspace.root), *arguments])


def read(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_flags_are_known_moved_or_unknown_with_where(ingested: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ingested, "flags", "--json") == 0
    rows = {row["name"]: row for row in read(capsys)}
    assert {name: (row["status"], row["moved_to"]) for name, row in rows.items()} == {
        "xla_tpu_scoped_vmem_limit_kib": ("known", ""),
        "xla_jf_conv_reshape": ("moved", "xla_tpu_conv_reshape"),
        "xla_tpu_no_such_thing": ("unknown", ""),
    }
    uses = [(use["line"], use["value"]) for use in rows["xla_tpu_scoped_vmem_limit_kib"]["uses"]]
    assert [line for line, _ in uses] == [2, 5] and uses[0][1] == "65536"
    assert all(use["file"].endswith("first/settings.py") for row in rows.values() for use in row["uses"])


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("scoped_vmem", ["xla_tpu_scoped_vmem_limit_kib"]),
        ("--xla_tpu_no_such_thing=1", ["xla_tpu_no_such_thing"]),  # as it is pasted from a shell
        ("xla_jf_*", ["xla_jf_conv_reshape"]),
        ("*", ["xla_jf_conv_reshape", "xla_tpu_no_such_thing", "xla_tpu_scoped_vmem_limit_kib"]),
    ],
)
def test_flag_patterns(ingested: Workspace, capsys: pytest.CaptureFixture[str], pattern: str, names: list[str]) -> None:
    assert run(ingested, "flags", "--json", "--", pattern) == 0
    assert [row["name"] for row in read(capsys)] == names


def test_flags_as_text(ingested: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ingested, "flags") == 0
    out = capsys.readouterr().out
    assert "moved     xla_jf_conv_reshape  is now xla_tpu_conv_reshape" in out and "first/settings.py:2  = 65536" in out
    assert out.splitlines()[-1] == "3 flags: 1 known, 1 moved, 1 unknown (libtpu 9.9)"


def test_no_flag_matches(ingested: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ingested, "flags", "nothing_like_it") == 2
    assert "no flag matches" in capsys.readouterr().err


def test_sources_say_age_counts_and_what_is_stale(ingested: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ingested, "sources", "--json") == 0
    rows = {row["name"]: row for row in read(capsys)}
    assert rows["first"]["files"] == 2 and rows["second"]["calls"] == 1 and rows["second"]["unresolved_frac"] == 1.0
    assert not rows["first"]["stale"] and rows["first"]["age_days"] < 1 / 24
    (tmp_path / "first/settings.py").write_text("changed = 1\n")
    assert run(ingested, "sources") == 0
    out = capsys.readouterr().out
    assert "first is stale: 1 files changed" in out and "second is stale" not in out and "100.0%" in out and "0 min" in out


@pytest.mark.parametrize("said", ["second", "src:second", "LOCATOR"])
def test_forget(ingested: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str) -> None:
    assert run(ingested, "forget", str(tmp_path / "second") if said == "LOCATOR" else said, "--json") == 0
    assert read(capsys)["name"] == "second"
    assert run(ingested, "sources", "--json") == 0
    assert [row["name"] for row in read(capsys)] == ["first"]
    assert run(ingested, "show", "sym:second.f") == 2


def test_forget_names_what_there_is(ingested: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ingested, "forget", "third") == 2
    assert "ingested: first, second" in capsys.readouterr().err


def test_kernels_json_on_installed_jax(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jax")
    assert run(workspace, "ingest", "pkg:jax/experimental/pallas/ops/tpu/splash_attention") == 0
    capsys.readouterr()
    assert run(workspace, "kernels", "--backend", "mosaic_tpu", "--family", "attention", "--json") == 0
    rows = {row["name"]: row for row in read(capsys)}
    forward = rows["flash_attention_kernel"]
    source = Path(forward["file"]).read_text().splitlines()
    assert "pallas_call" in source[forward["line"] - 1]
    assert source[forward["body"]["line"] - 1].startswith("def flash_attention_kernel(")
    assert source[forward["wrapper"]["line"] - 1].startswith("def _splash_attention_forward(")
    tunables = {tunable["name"]: tunable["line"] for tunable in forward["tunables"]}
    assert {"block_q", "block_kv", "block_kv_compute"} <= set(tunables)
    assert all(f"{name}:" in source[line - 1] for name, line in tunables.items())
    assert (forward["backend"], forward["backend_how"], forward["body"]["how"]) == ("mosaic_tpu", "exact", forward["body_how"])
