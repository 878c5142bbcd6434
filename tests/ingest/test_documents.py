"""Documents, flags and catalogues: headings as spans, flags against the installed libtpu, hand-kept tables joined to source."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

import kgagent.ingest.pool as pool
from kgagent.graph import Graph
from kgagent.ingest import ingest, list_flags, list_kernels, pdf
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


HTML = """<!doctype html><html><head><title>Not shown</title>
<style>h1 { color: red }</style></head>
<body><nav><h2>Menu</h2></nav>
<h1>One<a href="#one">¶</a></h1>
<p>text &amp; more
over lines, set <code>--xla_dump_to=/tmp/y</code>
<h2>Two
 words</h2>
<table><tr><th>Kernel</th><th>Path</th><th>Backend</th></tr>
<tr><td>k</td><td>a/b.py</td><td>Mosaic TPU</td></tr></table>
<script>var h = "<h1>code</h1>";</script>
<h1>Three</h1></p></div> last
"""


def test_html_keeps_the_lines_of_its_source() -> None:
    symbols, facts = read_document(HTML, ".html")
    assert [(s.qual, s.parent, s.line_start, s.line_end) for s in symbols] == [("one", -1, 4, 11), ("two-words", 0, 7, 11), ("three", -1, 12, 13)]
    assert "text & more\nover lines" in symbols[0].doc
    assert not any("code</h1>" in s.doc or "color" in s.doc for s in symbols)
    assert facts["flags"] == [[0, "xla_dump_to", "/tmp/y", 6]]
    assert facts["catalogue"] == [[10, {"name": "k", "path": "a/b.py", "backend": "Mosaic TPU"}]]


def test_html_may_leave_out_end_tags() -> None:
    symbols, _ = read_document("<html><head><title>x<meta charset=utf-8></title>\n<h1>Seen\n<h2>Too</h2>\n<p>text", ".html")
    assert [(s.qual, s.parent, s.line_start, s.doc) for s in symbols] == [("seen", -1, 2, ""), ("too", 0, 3, "text")]


@pytest.mark.parametrize(
    "text", ["", "<", "</div></nav></p>", "<h1>", "<nav><h1>a", "<td>x</td>", "<table><tr></table>", "<!--", "<h1>" * 3000, "&#xD800;" * 3]
)
def test_broken_html_is_read_as_far_as_it_goes(text: str) -> None:
    read_document(text, ".html")


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


def pdf_of(folder: Path, pages: list[str], bookmarks: list[tuple[str, int, int]]) -> bytes:
    """A PDF whose pages show one line of text each, with (title, page index, index of its parent) bookmarks."""
    pypdf = pytest.importorskip("pypdf", reason="the PDF extractor is optional")
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = pypdf.PdfWriter()
    font = DictionaryObject(
        {NameObject("/Type"): NameObject("/Font"), NameObject("/Subtype"): NameObject("/Type1"), NameObject("/BaseFont"): NameObject("/Helvetica")}
    )
    for text in pages:
        page = writer.add_blank_page(300, 300)
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})})
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
    made: list[object] = []
    for title, page_index, parent in bookmarks:
        made.append(writer.add_outline_item(title=title, page_number=page_index, parent=made[parent] if parent >= 0 else None))
    writer.write(folder / "made.pdf")
    return (folder / "made.pdf").read_bytes()


def sections_of(graph: Graph) -> list[tuple[str, int, int, str]]:
    return graph.rows("SELECT id, line_start, line_end, doc FROM node WHERE id LIKE 'sec:tree/%' ORDER BY id")


@pytest.mark.parametrize(
    "bookmarks, expected",
    [
        ([], [("#page-1", 1, 1, "Tiles of VMEM"), ("#page-2", 2, 2, "run with --xla_dump_to=/tmp/z")]),
        ([("All", 0, -1), ("Flags", 1, 0)], [("#all", 1, 2, "Tiles of VMEM"), ("#flags", 2, 2, "run with --xla_dump_to=/tmp/z")]),
    ],
)
@pytest.mark.parametrize("alone_bytes", [0, 10**9])
def test_pdf_pages_and_bookmarks_are_sections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone_bytes: int, bookmarks: list[tuple[str, int, int]], expected: list[tuple[str, int, int, str]]
) -> None:
    monkeypatch.setattr(pool, "ALONE_BYTES", alone_bytes)
    tree = write_tree(tmp_path / "tree", {"m.py": ""})
    (tree / "paper.pdf").write_bytes(pdf_of(tmp_path, ["Tiles of VMEM", "run with --xla_dump_to=/tmp/z"], bookmarks))
    with graph_in(tmp_path / "ws") as graph:
        (report,) = ingest(graph, [str(tree)])
        assert report.problems == ()
        assert sections_of(graph) == [(f"sec:tree/paper.pdf{slug}", *rest) for slug, *rest in expected]
        (flag,) = list_flags(graph, "xla_dump_to")
        assert [(use.line, use.value) for use in flag.uses] == [(2, "/tmp/z")]


def test_a_pdf_that_is_none_is_skipped_with_the_reason(tmp_path: Path) -> None:
    pytest.importorskip("pypdf", reason="the PDF extractor is optional")
    tree = write_tree(tmp_path / "tree", {"m.py": "def f(): pass\n", "bad.pdf": "%PDF-1.7 nothing"})
    with graph_in(tmp_path / "ws") as graph:
        (report,) = ingest(graph, [str(tree)])
        (problem,) = report.problems
        assert problem.path == "bad.pdf" and problem.reason.startswith("not a readable PDF: ")
        assert graph.node("sym:m.f") is not None


def test_without_an_extractor_a_pdf_says_how_to_get_it_and_is_read_once_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = write_tree(tmp_path / "tree", {"m.py": ""})
    (tree / "paper.pdf").write_bytes(pdf_of(tmp_path, ["Tiles of VMEM"], []))
    with graph_in(tmp_path / "ws") as graph:
        with monkeypatch.context() as patch:
            patch.setattr(pdf, "available", lambda: False)
            for _ in range(2):
                (report,) = ingest(graph, [str(tree)])
                assert [str(p) for p in report.problems] == [f"paper.pdf: {pdf.MISSING}"]
        assert "kgagent[documents]" in pdf.MISSING
        (report,) = ingest(graph, [str(tree)])
        assert report.problems == ()
        assert [doc for *_, doc in sections_of(graph)] == ["Tiles of VMEM"]
