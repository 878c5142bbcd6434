"""What ingest finds in the installed jax, tokamax and flax, against an oracle that uses Python's own parser, and against reading."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import deque
from importlib.metadata import version
from pathlib import Path

import pytest

from kgagent.graph import Graph
from kgagent.ingest import IngestReport, KernelRow, kernel_callers, list_kernels, list_sources

from .helpers import SHARED

ORACLE = SHARED / "gold" / "launch_oracle.py"
READ = Path(__file__).with_name("launches.csv")
READ_VERSIONS = {"jax": "0.12.0.1", "tokamax": "0.0.17"}
MUST_BE_RIGHT = 58

Installed = tuple[Graph, tuple[IngestReport, ...]]


@pytest.fixture(scope="session")
def kernels(installed: Installed) -> tuple[KernelRow, ...]:
    return list_kernels(installed[0])


@pytest.mark.parametrize("package", ["jax", "tokamax"])
def test_every_launch_of_the_oracle_is_found(installed: Installed, kernels: tuple[KernelRow, ...], tmp_path: Path, package: str) -> None:
    if not ORACLE.is_file():
        pytest.skip("the oracle script stands in the shared folder, which is not here")
    root = next(report.root for report in installed[1] if report.name == package)
    out = tmp_path / "sites.json"
    subprocess.run([sys.executable, str(ORACLE), root, str(out)], check=True, capture_output=True)
    sites = {(site["file"], site["line"]) for site in json.loads(out.read_text())["sites"]}
    assert len(sites) > 30
    assert sites - {(kernel.file, kernel.line) for kernel in kernels} == set()


def test_launches_checked_by_reading(kernels: tuple[KernelRow, ...]) -> None:
    if {name: version(name) for name in READ_VERSIONS} != READ_VERSIONS:
        pytest.skip(f"lines were read in {READ_VERSIONS}")
    rows = list(csv.DictReader(READ.open()))
    assert len(rows) >= 60
    assert sum("decorator" in row["form"] or "partial" in row["form"] or row["form"] == "wrapper" for row in rows) >= 20
    by_place = {(kernel.source, kernel.path, kernel.line): kernel for kernel in kernels}
    wrong, unresolved = [], []
    for row in rows:
        kernel = by_place.get((row["package"], row["path"], int(row["line"])))
        if kernel is None:
            wrong.append((row, "not found"))
            continue
        found = kernel.bodies or ((kernel.body.id,) if kernel.body else ())
        bodies = {body.rsplit(".", 1)[-1] for body in found}
        if (bodies, kernel.backend) == (set(filter(None, row["body"].split("|"))), row["backend"]):
            continue
        (unresolved if kernel.body_how == "unresolved" or kernel.backend == "unresolved" else wrong).append((row, bodies, kernel.backend))
    assert wrong == []
    assert len(rows) - len(unresolved) >= MUST_BE_RIGHT


def test_splash_attention_is_whole(kernels: tuple[KernelRow, ...]) -> None:
    splash = next(k for k in kernels if k.source == "tokamax" and k.id.endswith("splash_attention_kernel/flash_attention_kernel"))
    lines = Path(splash.file).read_text().splitlines()
    assert "pallas_call(" in lines[splash.line - 1]
    assert splash.body is not None and splash.wrapper is not None
    assert lines[splash.body.line - 1].startswith("def flash_attention_kernel(")
    assert lines[splash.wrapper.line - 1].startswith("def _splash_attention_forward(")
    assert (splash.backend, splash.backend_how) == ("mosaic_tpu", "exact")
    tunables = {t.name: t for t in splash.tunables}
    assert {"block_q", "block_kv", "block_kv_compute", "block_q_dkv"} <= set(tunables)
    for tunable in splash.tunables:
        assert tunable.name in Path(tunable.file).read_text().splitlines()[tunable.line - 1]
    assert tunables["block_kv_compute"].default == "None"
    assert splash in list_kernels_of("attention", kernels)


def list_kernels_of(word: str, kernels: tuple[KernelRow, ...]) -> list[KernelRow]:
    return [kernel for kernel in kernels if word in kernel.id]


def reached(graph: Graph, start: str) -> set[str]:
    """Kernels within any number of calls, uses and wraps."""
    seen, queue = {graph.key(start)}, deque([graph.key(start)])
    while queue:
        for (key,) in graph.rows("SELECT dst FROM edge WHERE src = ? AND type IN ('calls', 'uses', 'wraps')", queue.popleft()):
            if key not in seen:
                seen.add(key)
                queue.append(key)
    return {id_ for key, id_ in graph.rows("SELECT n.key, n.id FROM kernel k JOIN node n ON n.key = k.key") if key in seen}


def test_the_public_attention_reaches_each_backend(installed: Installed) -> None:
    graph, reports = installed
    found = reached(graph, "sym:tokamax.dot_product_attention")
    backends = {backend for id_, backend in graph.rows("SELECT n.id, k.backend FROM kernel k JOIN node n ON n.key = k.key") if id_ in found}
    assert {"mosaic_tpu", "mosaic_gpu", "triton"} <= backends
    attention = Path(next(report.root for report in reports if report.name == "tokamax")) / "_src" / "ops" / "attention"
    # one module a GPU generation; which there are depends on the version of tokamax
    generations = [path.stem for path in attention.glob("pallas_mosaic_gpu_kernel_sm*.py") if not path.stem.endswith("_test")]
    assert {"pallas_mosaic_gpu_kernel_sm90", "pallas_mosaic_gpu_kernel_sm100"} <= set(generations)
    bodies = [f"{generation}/kernel" for generation in generations]
    for body in ("splash_attention_kernel/flash_attention_kernel", "pallas_triton/_fwd_kernel", *bodies):
        assert any(id_.endswith(body) for id_ in found), body
    assert not any("ragged_dot" in id_ for id_ in found)  # an attention call never ends in another operation's kernel


def test_callers_up_to_the_public_api_and_the_tests(installed: Installed) -> None:
    graph = installed[0]
    splash = "kernel:tokamax/_src/ops/experimental/tpu/splash_attention/splash_attention_kernel/flash_attention_kernel"
    found = kernel_callers(graph, splash)
    assert found.callers[0].place.id.endswith("._splash_attention_forward") and found.callers[0].hop == 1
    assert "sym:tokamax.dot_product_attention" in {caller.place.id for caller in found.public}
    assert any("splash_attention_kernel_test" in caller.place.id for caller in found.tests)
    assert [caller.hop for caller in found.callers] == sorted(caller.hop for caller in found.callers)


def test_tuning_tables_are_seen(installed: Installed) -> None:
    graph = installed[0]
    tables = dict(graph.rows("SELECT id, json_extract(data, '$.table.rows') FROM node WHERE json_extract(data, '$.table.rows') > 0"))
    assert tables["sym:jax.experimental.pallas.ops.tpu.ragged_paged_attention.tuned_block_sizes.TUNED_BLOCK_SIZES"] >= 2
    tuned = graph.rows("SELECT id FROM node WHERE kind = 'file' AND json_extract(data, '$.tuning') > 0")
    assert any("autotuning" in id_ for (id_,) in tuned)


def test_exact_calls_are_written_out(installed: Installed) -> None:
    """An exact call's line names its target, and the file imports from the target's package or belongs to it."""
    graph = installed[0]
    rows = graph.rows(
        """SELECT s.root || '/' || f.path, e.line, b.id, a.id FROM edge e JOIN node a ON a.key = e.src JOIN node b ON b.key = e.dst
           JOIN file f ON f.key = e.file JOIN source s ON s.key = f.source WHERE e.type = 'calls' AND e.how = 'exact' AND e.key % 37 = 0"""
    )
    assert len(rows) > 500
    texts: dict[str, list[str]] = {}
    for path, line, target, source in rows:
        lines = texts.setdefault(path, Path(path).read_text().splitlines())
        dotted = target.removeprefix("sym:").split(".")
        assert any(dotted[-1].partition("~")[0] in each for each in lines[line - 1 : line + 12]), (path, line, target)
        imported = any(dotted[0] in each for each in lines if "import" in each)
        assert imported or source.startswith(f"sym:{dotted[0]}."), (path, line, target)


def test_sources_say_what_they_hold(installed: Installed) -> None:
    rows = {row.name: row for row in list_sources(installed[0])}
    for report in installed[1]:
        row = rows[report.name]
        assert (row.files, row.symbols, row.kernels, row.stale) == (report.files, report.symbols, report.kernels, "")
        assert 0 < row.unresolved_frac < 0.25
        assert row.revision == version(report.name)


def test_config_fields_with_defaults_and_lines(installed: Installed) -> None:
    graph = installed[0]
    config = "sym:tokamax._src.ops.experimental.tpu.splash_attention.splash_attention_kernel.SplashConfig"
    fields = {edge.dst.rsplit(".", 1)[-1]: graph.need(edge.dst) for edge in graph.edges(src=config, type="defines") if edge.dst.startswith("sym:")}
    assert fields["fuse_reciprocal"].data == {"kind": "field", "type": "bool", "default": "True"}
    assert fields["fuse_reciprocal"].doc == "whether to compute o / lse inside the kernel"
    for name, node in fields.items():
        if node.data["kind"] != "field":
            continue
        assert node.path is not None and node.line_start is not None
        assert name in Path(node.path).read_text().splitlines()[node.line_start - 1]
