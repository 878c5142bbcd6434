"""Documents, flags and catalogues: headings as spans, flags against the installed libtpu, hand-kept tables joined to source."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from kgagent.graph import Graph
from kgagent.ingest import ingest, list_flags, list_kernels
from kgagent.ingest.documents import read_document
from kgagent.ingest.flags import Library, flags_in

from .helpers import contents, graph_in, write_tree

KERNEL = """
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def add_kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1

def add(x):
    return pl.pallas_call(add_kernel, out_shape=x, compiler_params=pltpu.CompilerParams())(x)
"""
CATALOGUE = """# Kernels

| Kernel | Repo | Path | Backend | Claim |
|--------|------|------|---------|-------|
| `add` | here | [src/lib/ops/add.py](x) | Mosaic TPU | 2x over XLA |
| paged | elsewhere | other/paged.py | Triton | stable |
"""

MARKDOWN = "intro\n# One\ntext\n```\n# not a heading\n```\n## Two ##\nmore\n# Three\nlast\n"
RST = "One\n===\ntext\n\nTwo\n---\nmore\n\nThree\n=====\nlast\n"


@pytest.mark.parametrize("text, kind, second_line", [(MARKDOWN, ".md", 7), (RST, ".rst", 5)])
def test_headings_are_spans(text: str, kind: str, second_line: int) -> None:
    one, two, three = read_document(text, kind)[0]
    assert [s.qual for s in (one, two, three)] == ["one", "two", "three"]
    assert (two.parent, two.line_start) == (0, second_line)
    assert (one.line_end, two.line_end) == (three.line_start - 1, three.line_start - 1)
    assert "text" in one.doc and "more" not in one.doc


@pytest.mark.parametrize(
    "text, expected",
    [
        ('"--xla_tpu_scoped_vmem_limit_kib=98304 --xla_jf_x"', [("xla_tpu_scoped_vmem_limit_kib", "98304"), ("xla_jf_x", "")]),
        ('"xla_tpu_enable_async_collective_fusion"', [("xla_tpu_enable_async_collective_fusion", "")]),
        ("export XLA_FLAGS='--xla_dump_to=/tmp/x --xla_dump_hlo_as_text'", [("xla_dump_to", "/tmp/x"), ("xla_dump_hlo_as_text", "")]),
        ('"xla_bridge"', []),
        ('"see xla_tpu_x in the docs"', []),
        ("--tpu_metadata=1, more", [("tpu_metadata", "1")]),
    ],
)
def test_flags_in_text(text: str, expected: list[tuple[str, str]]) -> None:
    assert flags_in(text) == expected


@pytest.mark.parametrize(
    "name, status",
    [("xla_tpu_known_thing", ("known", "")), ("xla_jf_known_thing", ("moved", "xla_tpu_known_thing")), ("xla_tpu_never_there", ("unknown", ""))],
)
def test_known_unknown_or_moved(name: str, status: tuple[str, str]) -> None:
    assert Library("1", frozenset({"xla_tpu_known_thing"})).status(name) == status


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    flags = "import os\n\ndef setup():\n    os.environ['LIBTPU_INIT_ARGS'] = '--xla_tpu_scoped_vmem_limit_kib=98304 --xla_tpu_made_up_by_us=true'\n"
    return write_tree(
        tmp_path / "tree",
        {
            "src/lib/__init__.py": "", "src/lib/ops/add.py": KERNEL, "src/lib/flags.py": flags, "run.sh": "export XLA_FLAGS=--xla_dump_to=/tmp/x\n",
            "conf.yaml": "args:\n  - --xla_tpu_scoped_vmem_limit_kib=1\n", "KERNELS.md": CATALOGUE,
            "kernels.json": json.dumps([{"name": "add", "path": "lib/ops/add.py", "backend": "tpu", "stability": "stable"}], indent=1),
        },
    )  # fmt: skip


def test_flags_with_their_places(tmp_path: Path, tree: Path) -> None:
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, [str(tree)])
        flags = {flag.name: flag for flag in list_flags(graph)}
        vmem = flags["xla_tpu_scoped_vmem_limit_kib"]
        uses = [(use.symbol, Path(use.file).name, use.line, use.value) for use in vmem.uses]
        assert uses == [("file:tree/conf.yaml", "conf.yaml", 2, "1"), ("sym:lib.flags.setup", "flags.py", 4, "98304")]
        assert flags["xla_dump_to"].uses[0].line == 1
        if importlib.util.find_spec("libtpu") is not None:
            assert (vmem.status, flags["xla_tpu_made_up_by_us"].status, flags["xla_dump_to"].status) == ("known", "unknown", "known")
            assert "stands in libtpu" in vmem.how
        else:
            assert vmem.status == "unchecked"
        assert [flag.name for flag in list_flags(graph, "vmem")] == [vmem.name]
        (tree / "run.sh").unlink()
        ingest(graph, [str(tree)])
        assert graph.node("flag:xla_dump_to") is None


def claims(graph: Graph) -> set[tuple[str, str, str]]:
    rows = graph.rows("""SELECT c.text, b.id, e.how FROM claim c JOIN edge e ON e.src = c.key AND e.type = 'mentions' JOIN node b ON b.key = e.dst""")
    return {(text, id_.rsplit("/", 1)[-1], how) for text, id_, how in rows}


def test_catalogues_join_the_source_they_list(tmp_path: Path, tree: Path) -> None:
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, [str(tree)])
        expected = {("2x over XLA", "add_kernel", "inferred"), ("stable", "KERNELS.md#L6", "unresolved"), ("add is listed as stable", "add_kernel", "inferred")}
        assert claims(graph) == expected
        rows = {row.name: row for row in list_kernels(graph)}
        assert (rows["paged"].backend, rows["paged"].line, rows["paged"].form) == ("triton", 6, "catalogue")
        assert [row.name for row in list_kernels(graph, backend="mosaic_tpu")] == ["add_kernel"]
        (tree / "src/lib/ops/add.py").unlink()
        ingest(graph, [str(tree)])
        assert {how for _, _, how in claims(graph)} == {"unresolved"}
        write_tree(tree, {"src/lib/ops/add.py": KERNEL})
        ingest(graph, [str(tree)])
        assert claims(graph) == expected
        incremental = contents(graph)
    with graph_in(tmp_path / "fresh") as graph:
        ingest(graph, [str(tree)])
        assert contents(graph)["edge"] == incremental["edge"]
        assert contents(graph)["node"] == incremental["node"]
