"""LLO dumps of the public fixture and of kernels compiled here, read by the same code; and dumps that are damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kgagent.compiler import aot_compile
from kgagent.compiler.dumps import bound_dump
from kgagent.errors import EvidenceError, StorageError
from kgagent.evidence.hlo import parse_hlo, read_hlo
from kgagent.evidence.kernels import kernel_calls
from kgagent.evidence.llo import Schedule, dump_files, parse_schedule, read_schedule
from kgagent.evidence.mosaic import body_of
from tests.evidence import programs
from tests.evidence.conftest import compiled_once

SPLASH = "splash_mha_fwd_no_residuals.1"


@pytest.fixture
def matmul(shared: Path) -> Schedule:
    (files,) = dump_files(shared / "evidence/v6e_matmul/jf_dump")
    return read_schedule(files)


@pytest.fixture(scope="session")
def splash_dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not programs.HAVE_LIBTPU:
        pytest.skip("libtpu is not installed")
    folder = tmp_path_factory.mktemp("dump") / "llo"
    assert aot_compile(programs.splash_export(), "v6e:2x2", dump=folder).status == "ok"
    return folder


def splash_schedule(folder: Path) -> Schedule:
    return read_schedule(next(files for files in dump_files(folder) if files.instruction == SPLASH))


def test_the_fixtures_figures(matmul: Schedule) -> None:
    """2,705 bundles with 9 empty are what the compiler's own schedule analysis counts."""
    assert (matmul.kernel, matmul.bundles, matmul.empty_bundles) == ("matmul_optimized.1", 2705, 9)
    (loop,) = matmul.loops
    assert loop.bound == 16 == (2048 // 512) * (1024 // 512) * (2048 // 1024)
    assert [(c.first, c.last) for c in matmul.conditionals] == [(0x70, 0x564), (0x56C, 0xA61)]
    assert (matmul.scalar_spills, matmul.scalar_fills, matmul.vector_spills, matmul.vector_fills) == (3, 3, 0, 0)
    slots = {slot.unit: slot for slot in matmul.slots}
    assert (slots["MXU"].capacity, slots["MXU"].used) == (2, 4036)
    assert 0.74 < slots["MXU"].frac(matmul.bundles) < 0.75
    windows = {a.name: a.allocation_bytes for a in matmul.allocations if a.space == "vmem"}
    assert windows == {"#allocation1": 0x12000, "#allocation2": 3 * 512 * 512 * 4, "#allocation4": 512 * 1024 * 4, "#allocation6": 2 * 512 * 1024 * 4}
    assert matmul.vmem_bytes == sum(windows.values())


def test_the_fixtures_grid_and_blocks(shared: Path) -> None:
    (path,) = (shared / "evidence/v6e_matmul/hlo_dump").glob("*.txt")
    body = body_of(read_hlo(path).entry.root)
    assert body is not None and body.name == "matmul_pipeline_kernel"
    assert (body.grid, body.steps) == ((4, 2, 2), 16)
    assert (body.windows, body.buffers) == (((512, 512), (512, 1024), (512, 1024)), (3, 1, 2))


def test_a_plain_pipeline_runs_its_grid_and_two_more(splash_dump: Path) -> None:
    schedule = splash_schedule(splash_dump)
    (loop,) = schedule.loops
    assert loop.bound == 8 * 4 * 4 + 2


def test_conditionals_are_the_kernels_own_whens(splash_dump: Path) -> None:
    """Three `pl.when` regions: initialise, compute, store; each found with the line of its condition."""
    schedule = splash_schedule(splash_dump)
    found = [c for c in schedule.conditionals if c.place]
    assert len(found) == 3 and all(c.place.rpartition(":")[0].endswith("splash_attention_kernel.py") for c in found)
    lines = [int(c.place.rpartition(":")[2]) for c in found]
    assert lines == sorted(lines)
    assert max(found, key=lambda c: c.bundles) is found[1], "the body is the largest region"


def test_bundles_by_line_sum_to_the_schedule(splash_dump: Path, matmul: Schedule) -> None:
    for schedule in (splash_schedule(splash_dump), matmul):
        assert sum(n for _, n in schedule.line_bundles) + schedule.unlocated_bundles == pytest.approx(schedule.bundles)
    located = splash_schedule(splash_dump)
    # older compilers leave combined loads and many matmul pushes without a line
    assert located.unlocated_bundles / located.bundles < (0.15 if programs.NEW_LIBTPU else 0.18)
    assert not matmul.line_bundles, "this dump was taken without source annotations"


def test_every_kernel_of_a_module_has_its_dump(splash_dump: Path) -> None:
    result = compiled_once(programs.splash_export(), "v6e:2x2")
    names = {files.instruction for files in dump_files(splash_dump)}
    assert {call.instruction.name for call in kernel_calls(parse_hlo(result.hlo_text))} <= names
    for files in dump_files(splash_dump):
        schedule = read_schedule(files)
        assert schedule.bundles > 0 and schedule.slots


def test_a_cut_dump_is_refused(shared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cut"
    shutil.copytree(shared / "evidence/v6e_matmul/jf_dump", folder)
    bundles = next(folder.glob("*-final_bundles.txt"))
    bundles = next(path for path in folder.glob("*-final_bundles.txt") if "schedule" not in path.name)
    bundles.chmod(0o644)
    text = bundles.read_text()
    bundles.write_text(text[: len(text) // 2])
    (files,) = dump_files(folder)
    with pytest.raises(EvidenceError, match=r"cut: \d+ bundles of the 2705"):
        read_schedule(files)


@pytest.mark.parametrize("text", ["", "not a dump", "   0x1 : no brace"])
def test_what_is_no_dump(text: str) -> None:
    with pytest.raises(EvidenceError, match="no bundles"):
        parse_schedule("k", text)


def test_folders_without_a_dump(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="no such dump folder"):
        dump_files(tmp_path / "nowhere")
    (tmp_path / "123-x-01-original.txt").write_text("")
    with pytest.raises(EvidenceError, match="no LLO dump") as caught:
        dump_files(tmp_path)
    assert "--xla_jf_dump_to" in caught.value.hint


def test_a_table_of_another_schedule_says_nothing() -> None:
    bundle = "     0   :  { %1 = sst [smem:[#allocation1_spill]] %s0 }\n   0x1   :  {}\n"
    table = "== CAPACTIY:\nMXU, SALU\n 2 2\n== UTILIZATION:\n0 1\n"
    assert parse_schedule("k", bundle, table).slots == ()
    whole = parse_schedule("k", bundle, table + "0 1\n")
    assert [(slot.unit, slot.used) for slot in whole.slots] == [("MXU", 0), ("SALU", 2)]
    assert (whole.vmem_bytes, whole.vector_spills, whole.scalar_spills, whole.empty_bundles) == (None, None, 1, 1)


def test_a_dump_that_fills_the_disk_is_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "a.txt").write_bytes(bytes(2000))
    assert bound_dump(folder, 2000) == 2000
    with pytest.raises(StorageError, match="was deleted"):
        bound_dump(folder, 1999)
    assert not folder.exists()
