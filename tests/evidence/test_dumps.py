"""Dumps tied to a run's kernels: the public fixture's, and those that are cut, foreign or too large, of which nothing is kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kgagent.errors import EvidenceError, KgError, StorageError, UsageError
from kgagent.evidence.add import add_profile, restore_profiles
from kgagent.evidence.digest import kernel_digest
from kgagent.evidence.dumps import add_dump
from kgagent.evidence.mosaic_dump import MosaicFiles, mosaic_files, parse_program, read_program
from kgagent.graph import Graph, NewNode, open_graph

RUN, KERNEL = "profile:matmul", "matmul_optimized.1"
WINDOWS = ((512, 512), (512, 1024), (512, 1024))
V6E_LIMIT = 32 * 2**20
PRETTY = (
    "module @scale {{\n  func.func @scale_body(%arg0: i32, %x: memref<8x128xf32>) attributes {{dimension_semantics = [#tpu.dimension_semantics<arbitrary>], "
    "iteration_bounds = array<i64: {grid}>, scalar_prefetch = 0 : i64, window_params = [{{transform_indices = @transform_0, "
    "window_bounds = array<i64: 8, 128>}}]}} {{\n    return\n  }}\n}}\n"
)


@pytest.fixture
def matmul(graph: Graph, shared: Path) -> Path:
    """The fixture as a profile in the graph; returns its folder."""
    add_profile(graph, shared / "evidence/v6e_matmul/logdir", run="matmul")
    return shared / "evidence/v6e_matmul"


def copied(folder: Path, target: Path) -> Path:
    """A dump folder one may damage."""
    shutil.copytree(folder, target)
    for path in target.iterdir():
        path.chmod(0o644)
    return target


def dumps(graph: Graph) -> list[str]:
    return sorted(path.name for path in (graph.workspace.raw / "dumps").glob("*"))


def test_both_dumps_of_the_fixture_reach_its_kernel(graph: Graph, matmul: Path) -> None:
    assert kernel_digest(graph, RUN, KERNEL).schedule is None
    added = add_dump(graph, RUN, matmul, vmem_limit_bytes=V6E_LIMIT)
    assert (len(added.kernels), added.without, added.others, added.files) == (1, (), 0, 5)
    digest = kernel_digest(graph, RUN, KERNEL)
    assert (digest.grid, digest.steps, digest.windows, digest.buffers) == ((4, 2, 2), 16, WINDOWS, (3, 1, 2))
    assert (digest.vmem_bytes, digest.vmem_limit_bytes) == (9510912, V6E_LIMIT)
    assert digest.schedule is not None and digest.schedule["bundles"] == 2705 and digest.schedule["slots"]["MXU"]["used"] == 4036
    assert graph.need(added.kernels[0].op).data["mosaic"]["read_from"] == "post-eliminate-llo-extensions"


def test_a_mosaic_dump_alone_gives_grid_and_blocks(graph: Graph, matmul: Path, tmp_path: Path) -> None:
    """Without HLO there is no kernel body, so that what is known of the grid comes from the dump."""
    with graph.transaction():
        facts = {"kernel_name": "matmul_pipeline_kernel", "shape": "f32[2048,2048]"}
        graph.put_nodes([NewNode("op:bare/k.1", "op", "k.1", "test", data=facts), NewNode("profile:bare", "profile", "bare", "test", data={})])
        graph.execute("INSERT INTO edge(src, type, dst, made_by) VALUES (?, 'has_op', ?, 'test')", graph.key("profile:bare"), graph.key("op:bare/k.1"))
    add_dump(graph, "profile:bare", matmul / "mosaic_dump")
    digest = kernel_digest(graph, "profile:bare", "k.1")
    assert (digest.grid, digest.steps, digest.windows, digest.buffers, digest.schedule) == ((4, 2, 2), 16, WINDOWS, (3, 1, 2), None)


def test_dumps_come_one_by_one_and_outlive_the_graph(graph: Graph, matmul: Path) -> None:
    add_dump(graph, RUN, matmul / "jf_dump", vmem_limit_bytes=V6E_LIMIT)
    add_dump(graph, RUN, matmul / "mosaic_dump", vmem_limit_bytes=V6E_LIMIT)
    before, workspace = graph.need("op:matmul/" + KERNEL).data, graph.workspace
    assert {"schedule", "mosaic"} <= set(before)
    graph.close()
    for path in workspace.root.glob("graph.db*"):
        path.unlink()
    with open_graph(workspace, write=True) as rebuilt:
        restore_profiles(rebuilt)
        assert rebuilt.need("op:matmul/" + KERNEL).data == before


def test_a_profile_added_again_keeps_its_dump(graph: Graph, matmul: Path) -> None:
    add_dump(graph, RUN, matmul / "jf_dump")
    add_profile(graph, matmul / "logdir", run="matmul")
    assert kernel_digest(graph, RUN, KERNEL).schedule is not None


def test_a_moved_dump_is_in_raw_and_gone_from_its_folder(graph: Graph, matmul: Path, tmp_path: Path) -> None:
    folder = copied(matmul / "jf_dump", tmp_path / "dump")
    (folder / "notes.txt").write_text("mine")
    add_dump(graph, RUN, folder, move=True)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    kept = sum(path.stat().st_size for path in graph.workspace.objects.rglob("*") if path.is_file())
    assert kept < 1_246_775, "compressed, with the profile's own objects"
    assert restore_profiles(graph) == (RUN,) and kernel_digest(graph, RUN, KERNEL).schedule is not None


def other_name(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        path.rename(path.with_name(path.name.replace("matmul_optimized.1", "softmax.7")))


def other_shape(folder: Path) -> None:
    for path in folder.glob("*final_bundles.txt"):
        path.write_text(path.read_text().replace("f32[2048,2048]", "f32[4096,2048]"))


def cut(folder: Path) -> None:
    bundles = next(path for path in folder.glob("*-final_bundles.txt") if "schedule" not in path.name)
    bundles.write_text(bundles.read_text()[:300_000])


def emptied(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def gone(folder: Path) -> None:
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "damage, says",
    [
        (other_name, r"another program: it has softmax\.7; profile:\w+ launches matmul_optimized\.1"),
        (other_shape, r"another program: its matmul_optimized\.1 returns f32\[4096,2048\], the run's f32\[2048,2048\]"),
        (cut, r"cut: \d+ bundles of the 2705"),
        (emptied, "no LLO or Mosaic dump there"),
        (gone, "no such dump folder"),
    ],
)
def test_of_a_bad_dump_nothing_is_kept(graph: Graph, matmul: Path, tmp_path: Path, damage, says: str) -> None:
    folder = copied(matmul / "jf_dump", tmp_path / "dump")
    damage(folder)
    before = graph.need("op:matmul/" + KERNEL).data
    objects = sorted(graph.workspace.objects.rglob("*"))
    with pytest.raises(EvidenceError, match=says) as caught:
        add_dump(graph, RUN, folder)
    assert caught.value.hint
    with pytest.raises(EvidenceError, match=says):
        add_profile(graph, matmul / "logdir", run="second", dumps=[matmul / "mosaic_dump", folder])
    assert graph.node("profile:second") is None and not (graph.workspace.raw / "profiles/second.json").exists()
    assert graph.need("op:matmul/" + KERNEL).data == before
    assert dumps(graph) == [] and sorted(graph.workspace.objects.rglob("*")) == objects


def test_a_dump_that_is_too_large_is_refused(graph: Graph, matmul: Path) -> None:
    with pytest.raises(StorageError, match="more than the limit of 1 MiB; nothing was stored"):
        add_dump(graph, RUN, matmul / "mosaic_dump", limit_bytes=2**20)
    assert dumps(graph) == []


def test_a_run_without_kernels_takes_no_dump(graph: Graph, matmul: Path) -> None:
    with graph.transaction():
        graph.put_nodes([NewNode("profile:none", "profile", "none", "test", data={}), NewNode("lane:x", "lane", "x", "test")])
    for run, says in (("profile:none", "launches no Pallas kernel"), ("lane:x", "not a profile")):
        with pytest.raises(UsageError, match=says):
            add_dump(graph, run, matmul / "jf_dump")


def test_a_damaged_manifest_is_named(graph: Graph, matmul: Path) -> None:
    add_dump(graph, RUN, matmul / "jf_dump")
    (graph.workspace.raw / "dumps/profile-matmul.json").write_text('{"run": 1}')
    with pytest.raises(StorageError, match="dump's manifest is damaged"):
        restore_profiles(graph)


def test_mosaic_of_the_fixture_and_of_a_kernel_with_attributes(shared: Path) -> None:
    (files,) = mosaic_files(shared / "evidence/v6e_matmul/mosaic_dump")
    program = read_program(files)
    assert (program.name, program.function, program.passes) == ("anonymous", "matmul_pipeline_kernel", 1)
    assert (program.grid, program.windows, program.buffers) == ((4, 2, 2), WINDOWS, (3, 1, 2))
    plain = parse_program(PRETTY.format(grid="3, 5"), "scale", "original")
    assert plain is not None and (plain.function, plain.grid, plain.windows) == ("scale_body", (3, 5), ((8, 128),))


def test_of_many_passes_the_first_that_tells_is_read(tmp_path: Path) -> None:
    for stamp, number, label, text in (
        (1, 0, "original", PRETTY.format(grid="9, 9")),
        (2, 0, "post-deserialization", "module {\n}\n"),
        (2, 1, "original", PRETTY.format(grid="2, 4")),
        (2, 2, "post-lower-to-llo", PRETTY.format(grid="7, 7")),
    ):
        (tmp_path / f"{stamp}-{number:04}-mosaic-dump-scale-{label}.txt").write_text(text)
    (files,) = mosaic_files(tmp_path)
    assert [label for label, _ in files.passes] == ["post-deserialization", "original", "post-lower-to-llo"]
    program = read_program(files)
    assert (program.grid, program.read_from) == ((2, 4), "original")


@pytest.mark.parametrize("text", ["", "module {", "\x00\x01"])
def test_what_is_no_mosaic(tmp_path: Path, text: str) -> None:
    path = tmp_path / "1-0001-mosaic-dump-k-original.txt"
    path.write_text(text)
    assert parse_program(text, "k", "original") is None
    with pytest.raises(KgError, match="no kernel function"):
        read_program(MosaicFiles("k", (("original", path),)))
