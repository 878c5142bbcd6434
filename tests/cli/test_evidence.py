"""profile, evidence, flame, gap and kernel through the command line, on the public fixture; and files that are bad in every way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kgagent.cli.main import guarded
from kgagent.graph import open_graph
from kgagent.workspace import Workspace

HOST_ONLY = b"\x0a\x0b\x12\x09/host:CPU"  # an XSpace with one plane and no event


@pytest.fixture
def fixture(shared: Path) -> Path:
    return shared / "evidence/v6e_matmul"


@pytest.fixture
def added(workspace: Workspace, fixture: Path, capsys: pytest.CaptureFixture[str]) -> Workspace:
    assert run(workspace, "profile", "add", fixture / "logdir", "--run", "matmul", "--dump", fixture / "jf_dump", "--dump", fixture / "mosaic_dump") == 0
    told = capsys.readouterr()
    assert "TPU v6 Lite" in told.out and "compiling: not in this trace" in told.out
    assert "100.0% of us has a line" in told.err and "2,705 bundles" in told.err and "grid 4 x 2 x 2" in told.err
    return workspace


def run(workspace: Workspace, *arguments: object) -> int:
    return guarded(["-w", str(workspace.root), *map(str, arguments)])


def out(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def read(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(out(capsys))


def test_one_screen_about_the_fixtures_kernel(added: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(added, "kernel", "matmul", "matmul_optimized.1") == 0
    screen = out(capsys)
    for says in ("4 x 2 x 2", "512x512 x 3, 512x1024 x 1, 512x1024 x 2", "9.07 MiB of 32 MiB (28%)", "2,705, 9 empty", "MXU 75%", "227.262 us over 3"):
        assert says in screen
    assert len(screen.splitlines()) < 40
    assert run(added, "kernel", "matmul", "matmul_optimized", "--json") == 0
    assert read(capsys)["schedule"]["slots"]["MXU"]["used"] == 4036


@pytest.mark.parametrize(
    "view, says, figure",
    [
        ("overview", "75.790 us", lambda v: (v[0]["executions"], v[0]["compile_us"]) == (3, None)),
        ("ops", "matmul_optimized.1", lambda v: v[0]["self_ps"] == 227_262_500),
        ("roofline", "blind: 100.0% of op time has no rate", lambda v: v["ops"][0]["bound_by"] is None),
        ("memory", "pallas_matmul.py:48", lambda v: v["allocators"][0]["peak_bytes"] == 51333120),
        ("kernels", "ep_wait_in", lambda v: v[0]["invocations"] == 3 and len(v[0]["stages"]) == 10),
        ("counters", "% util", lambda v: any(row["counter"]["name"] == "MXU" for row in v)),
        ("collectives", "not in this trace", lambda v: v == []),
        ("input", "step markers", lambda v: v["input_frac"] is None),
    ],
)
def test_every_view_as_text_and_as_json(added: Workspace, capsys: pytest.CaptureFixture[str], view: str, says: str, figure: Callable[[Any], bool]) -> None:
    if view in ("roofline", "memory", "input"):
        pytest.importorskip("xprof")
    assert run(added, "profile", "show", "matmul", "--view", view) == 0
    assert says in out(capsys)
    assert run(added, "profile", "show", "matmul", "--view", view, "--json") == 0
    assert figure(read(capsys))


def test_the_neighbourhood_of_an_instruction(added: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(added, "profile", "hlo", "matmul", "%matmul_optimized.1") == 0
    assert "operand  x.1          parameter  f32[2048,1024]" in out(capsys)
    assert run(added, "profile", "hlo", "matmul", "x.1", "--json") == 0
    assert [(n["direction"], n["name"]) for n in read(capsys)["neighbours"]] == [("user", "matmul_optimized.1")]


def test_tree_flame_and_gap_with_itself(added: Workspace, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(added, "evidence", "matmul") == 0
    assert "0.0% unattributed" in out(capsys)
    for name in ("f.svg", "f.json"):
        assert run(added, "flame", "matmul", "-o", tmp_path / name) == 0
        assert "227.3 us" in out(capsys) and (tmp_path / name).stat().st_size > 500
    assert run(added, "flame", "matmul", "-o", tmp_path / "f.png") == 2
    capsys.readouterr()
    assert run(added, "gap", "matmul", "matmul", "--json") == 0
    told = read(capsys)
    assert [g["by"] for g in told["gaps"]] == ["class", "line", "concept"] and told["only_in_a"] == [] == told["only_in_b"]
    assert all(row["difference"] == 0 and row["statement"] == "" for g in told["gaps"] for row in g["rows"])
    assert run(added, "gap", "matmul", "matmul", "--by", "line") == 0
    assert "from A = profile:matmul" in out(capsys)


def damaged(name: str, content: Callable[[Path], bytes]) -> Callable[[Path, Path], list[object]]:
    def make(fixture: Path, folder: Path) -> list[object]:
        path = folder / name
        path.write_bytes(content(fixture))
        return [path]

    return make


def trace(fixture: Path) -> bytes:
    return next((fixture / "logdir").rglob("*.xplane.pb")).read_bytes()


def hlo_cut(fixture: Path, folder: Path) -> list[object]:
    text = next((fixture / "hlo_dump").glob("*.txt")).read_text()
    (folder / "cut.txt").write_text(text[: text.index("ROOT")])
    return [fixture / "logdir", "--hlo", folder / "cut.txt"]


def other_dump(fixture: Path, folder: Path) -> list[object]:
    target = folder / "dump"
    shutil.copytree(fixture / "jf_dump", target)
    for path in sorted(target.iterdir()):
        path.rename(path.with_name(path.name.replace("matmul_optimized.1", "other.1")))
    return [fixture / "logdir", "--dump", fixture / "mosaic_dump", "--dump", target]


BAD = {
    "truncated": (damaged("t.xplane.pb", lambda f: trace(f)[:500_000]), "the file is cut off"),
    "empty": (damaged("t.xplane.pb", lambda f: b""), "the profile is empty"),
    "text": (damaged("t.xplane.pb", lambda f: b"HloModule m\n" * 9), "not a profile"),
    "another protobuf": (damaged("t.xplane.pb", lambda f: next((f / "logdir").rglob("*.hlo_proto.pb")).read_bytes()), "a protobuf of another kind"),
    "no device plane": (damaged("t.xplane.pb", lambda f: HOST_ONLY), "holds no XLA operation"),
    "an empty folder": (lambda fixture, folder: [folder], r"no *.xplane.pb below that folder"),
    "no such file": (lambda fixture, folder: [folder / "nowhere"], "no such profile"),
    "HLO cut in the middle": (hlo_cut, "cut inside computation"),
    "HLO that is none": (lambda fixture, folder: [fixture / "logdir", "--hlo", next((fixture / "logdir").rglob("*.xplane.pb"))], "isn't UTF-8"),
    "a dump of another program": (other_dump, "a dump of another program: it has other.1"),
    "a dump folder without a dump": (lambda fixture, folder: [fixture / "logdir", "--dump", folder], "no LLO or Mosaic dump there"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_message_and_nothing_is_stored(
    case: str, workspace: Workspace, fixture: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make, says = BAD[case]
    folder = tmp_path / "input"
    folder.mkdir()
    assert run(workspace, "profile", "add", *make(fixture, folder), "--run", "bad") == 1
    told = capfd.readouterr()
    lines = told.err.splitlines()
    assert told.out == "" and lines[0].startswith("error: ") and says in lines[0]
    assert len(lines) == 2 and lines[1].startswith("  next: "), "one message, and no library's own noise"
    with open_graph(workspace) as graph:
        assert not graph.rows("SELECT id FROM node WHERE kind IN ('profile', 'op', 'line')")
    assert not [path for path in workspace.raw.rglob("*") if path.is_file() and path.name != "journal.db"]


def test_a_dump_for_a_run_nobody_added(workspace: Workspace, fixture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(workspace, "profile", "dump", "nobody", fixture / "jf_dump") == 2
    assert "no profile or compile 'nobody'" in capsys.readouterr().err


def test_a_dump_can_come_later_and_has_a_limit(workspace: Workspace, fixture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(workspace, "profile", "add", fixture / "logdir", "--run", "matmul") == 0
    assert run(workspace, "profile", "dump", "matmul", fixture / "mosaic_dump", "--limit-mib", 1) == 1
    assert "more than the limit of 1 MiB; nothing was stored" in capsys.readouterr().err
    assert run(workspace, "profile", "dump", "matmul", fixture / "jf_dump", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kernels"][0]["schedule"]["bundles"] == 2705 and told["without"] == []
