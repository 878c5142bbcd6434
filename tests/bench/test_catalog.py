"""The catalogue's run: its list, its oracle, and a package that fails; nothing is downloaded."""

from __future__ import annotations

import importlib.util
import json
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from kgagent.errors import IngestError
from kgagent.graph import open_graph
from kgagent.ingest import list_sources
from kgagent.workspace import find_workspace

BENCH = Path(__file__).parents[2] / "bench"
KERNEL = """from jax.experimental import pallas as pl

def body(x_ref, o_ref):
    o_ref[...] = x_ref[...]

def rope(x):
    return pl.pallas_call(body, out_shape=x)(x)
"""


@pytest.fixture
def catalog() -> ModuleType:
    spec = importlib.util.spec_from_file_location("catalog", BENCH / "catalog.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["catalog"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def offline(catalog: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """pip as it would be: a wheel of one kernel for every name but `missing`."""

    def download(requirement: str, folder: Path, locator: str) -> Path:
        name, _, version = requirement.partition("==")
        if name == "missing":
            raise IngestError("pip can't download it: no matching distribution", where=locator)
        wheel = folder / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as out:
            for path, text in {f"{name}/__init__.py": "", f"{name}/kernels/rope.py": KERNEL}.items():
                out.writestr(zipfile.ZipInfo(path, (2024, 8, 12, 1, 2, 4)), text)
        return wheel

    monkeypatch.setattr("kgagent.ingest.fetch.download", download)
    return catalog


def oracle(folder: Path, line: int) -> Path:
    """A script that says there is a launch at this line of rope.py."""
    script = folder / "oracle.py"
    script.write_text(
        "import json, sys\nfrom pathlib import Path\nfiles = Path(sys.argv[1]).rglob('rope.py')\n"
        f"json.dump({{'sites': [{{'file': str(f), 'line': {line}}} for f in files]}}, open(sys.argv[2], 'w'))\n"
    )
    return script


def test_the_list_pins_every_package_or_says_why_not(catalog: ModuleType) -> None:
    pins = catalog.read_pins(BENCH / "catalog_sources.toml")
    assert {pin.name for pin in pins} == {
        "jax", "tokamax", "ejkernel", "easydel", "maxtext", "qwix", "google-tunix", "recurrentgemma", "ringattention", "pallas-forge", "tonno",
        "jax-linear-attention",
    }  # fmt: skip
    assert all(bool(pin.version) != bool(pin.absent) for pin in pins)


@pytest.mark.parametrize(("line", "missed"), [(7, 0), (3, 1)])
def test_a_failing_package_costs_only_itself(offline: ModuleType, tmp_path: Path, line: int, missed: int) -> None:
    pins = [offline.Pinned("good", "1.0", ""), offline.Pinned("missing", "2.0", ""), offline.Pinned("gone", "", "not on PyPI"), offline.Pinned("also", "3", "")]
    entries, _ = offline.catalogue(tmp_path / "ws", pins, oracle(tmp_path, line))
    assert [(entry.name, entry.kernels, len(entry.missed), entry.day) for entry in entries if not entry.error] == [
        ("good", 1, missed, "2024-08-12"),
        ("also", 1, missed, "2024-08-12"),
    ]
    assert [entry.error.split(":")[0] for entry in entries if entry.error] == ["pip can't download it", "not on PyPI"]
    bars = offline.bars_of(entries)
    assert bars["good.oracle_launches_found"] == {"value": 1 - missed, "limit": 1, "ok": not missed} and not bars["packages_failed"]["ok"]
    assert (tmp_path / "ws/wiki/directory/kernel-directory-rotary.md").is_file()
    json.dumps(offline.figures_of(entries))


def test_a_second_run_reads_nothing_again(offline: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = [offline.Pinned("good", "1.0", "")]
    offline.catalogue(tmp_path / "ws", pins, tmp_path / "no-oracle.py")
    monkeypatch.setattr("kgagent.ingest.fetch.download", lambda *_: pytest.fail("downloaded again"))
    entries, wiki = offline.catalogue(tmp_path / "ws", pins, tmp_path / "no-oracle.py")
    assert wiki["wiki_written"] == 0 and (entries[0].kernels, entries[0].oracle, entries[0].oracle_note) == (1, -1, "no-oracle.py is not there")


def test_a_new_version_takes_the_place_of_the_old(offline: ModuleType, tmp_path: Path) -> None:
    offline.catalogue(tmp_path / "ws", [offline.Pinned("good", "1.0", ""), offline.Pinned("also", "3", "")], tmp_path / "no-oracle.py")
    entries, _ = offline.catalogue(tmp_path / "ws", [offline.Pinned("good", "1.1", "")], tmp_path / "no-oracle.py")
    assert [(entry.kernels, entry.error) for entry in entries] == [(1, "")]
    with open_graph(find_workspace(explicit=tmp_path / "ws")) as graph:
        assert [(row.name, row.revision) for row in list_sources(graph)] == [("also", "3"), ("good", "1.1")]
