"""The kernel directory: which family a kernel is of, and what its pages say of real and small sources."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kgagent.frontmatter import parse_page
from kgagent.graph import Graph, open_graph
from kgagent.ingest import forget, ingest, list_kernels
from kgagent.knowledge import shipped_concepts
from kgagent.wiki import render
from kgagent.wiki.directory import read_directory
from kgagent.wiki.directory_rows import read_entries, source_days
from kgagent.wiki.families import OTHER, family_of, load_families

# (names a kernel goes by, narrowest first; lines that mention concepts; its family). Names are those of real kernels.
FAMILIES = [
    (["flash_attention_kernel", "_splash_attention_forward", "ops", "tpu", "splash_attention"], {}, "block-sparse-attention"),
    (["flash_attention_kernel", "_splash_attention_forward", "blocksparse_attention", "_kernel"], {"concept:flash-attention": 9}, "block-sparse-attention"),
    (["ragged_paged_attention_kernel", "kernel"], {}, "paged-attention"),
    (["paged_flash_attention_kernel", "paged_attention", "paged_attention_kernel"], {}, "paged-attention"),
    (["_mla_ragged_paged_attention_kernel", "mla_ragged_paged_attention"], {}, "paged-attention"),
    (["_flash_mla_kernel", "_flash_mla_pallas_call"], {}, "latent-attention"),
    (["csa_streamindex_score_kernel", "kernels", "attention"], {}, "indexed-attention"),
    (["ragged_flash_attention_kernel", "ragged_mqa"], {}, "decode-attention"),
    (["_gdr_grouped_decode_kernel", "gated_delta_rule"], {}, "recurrent"),
    (["linear_rnn_pallas_kernel", "jax", "pallas"], {}, "recurrent"),
    (["mha_forward_kernel", "mha", "ops", "gpu", "attention"], {}, "attention"),
    (["_ce_fwd_kernel", "fused_cross_entropy"], {}, "losses"),
    (["_all_gather_kernel", "all_gather_matmul"], {}, "collectives"),
    (["kernel", "gmm", "megablox", "backend"], {}, "grouped-matmul"),
    (["kernel_main", "gmm_v2", "gmm_v2"], {}, "grouped-matmul"),
    (["RaggedDotKernel"], {}, "grouped-matmul"),
    (["ragged", "dot"], {}, "matmul"),  # side by side in one name, or it is something else
    (["_swiglu_kernel", "matmul"], {}, "gated-linear-unit"),
    (["_matmul_kernel", "quantized_matmul"], {}, "quantised-matmul"),
    (["_rmsnorm_residual_kernel", "rmsnorm"], {}, "normalisation"),
    (["threefry_kernel", "random"], {}, "random"),
    (["kernel", "impl"], {"concept:tiling": 30, "concept:normalisation": 2}, "normalisation"),  # tiling is no function
    (["kernel", "impl"], {"concept:flash-attention": 2, "concept:online-softmax": 2, "concept:quantisation": 3}, "attention"),
    (["kernel", "impl"], {"concept:vmem": 5}, "other"),
    (["dotted_kernel", "normal"], {}, "other"),  # whole words only
    ([""], {}, "other"),
]


@pytest.mark.parametrize(("names", "concepts", "slug"), FAMILIES, ids=lambda v: v[0] if isinstance(v, list) else None)
def test_family(names: list[str], concepts: dict[str, int], slug: str) -> None:
    assert family_of(names, concepts, load_families()).slug == slug


def test_every_phrase_leads_to_its_own_family() -> None:
    """A phrase that a family before it swallows would never be used."""
    families = load_families()
    swallowed = [
        (family.slug, phrase) for family in families for phrase in family.phrases if family_of([phrase.strip().replace(" ", "_")], {}, families) is not family
    ]
    assert swallowed == []
    assert families[-1] is OTHER and len({family.slug for family in families}) == len(families)


def test_families_name_concepts_there_are() -> None:
    shipped = {f"concept:{path.stem}" for path in shipped_concepts().glob("*.md")}
    named = [concept for family in load_families() for concept in family.concepts]
    assert set(named) <= shipped and len(named) == len(set(named))


def rows_of(text: str) -> list[list[str]]:
    """The cells of every table row that starts with a link to a page of its own."""
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in text.splitlines() if line.startswith("| [[")]


def test_installed_jax_pallas(graph: Graph) -> None:
    pytest.importorskip("jax")
    ingest(graph, ["pkg:jax/experimental/pallas"])
    first = render(graph)
    wiki = graph.workspace.wiki
    assert {"kernel-directory.md", "directory/kernel-directory-block-sparse-attention.md"} <= set(first.written)
    launches = list_kernels(graph)
    pages = {path.stem: path.read_text() for path in (wiki / "directory").glob("*.md")}
    places = [row[3].strip("`") for text in pages.values() for row in rows_of(text)]
    assert sorted(places) == sorted(f"jax.experimental.pallas/{row.path}:{row.line}" for row in launches), "each launch in one family, once"
    rows = rows_of(pages["kernel-directory-block-sparse-attention"])
    splash = next(row for row in rows if "|flash_attention_kernel]]" in row[0])
    assert splash[1] == "mosaic tpu" and "`block_q`" in splash[4] and "`_splash_attention_fwd`" in splash[5]
    assert parse_page((wiki / "kernel-directory.md").read_text()).meta["kernels"] == str(len(launches))
    home = (wiki / "kgagent.md").read_text()
    assert "[[kernel-directory|" in home
    before = {path: path.read_bytes() for path in wiki.rglob("*.md")}
    again = render(graph)
    assert (again.written, again.removed) == ((), ()) and {path: path.read_bytes() for path in wiki.rglob("*.md")} == before
    forget(graph, "jax.experimental.pallas")
    gone = render(graph)
    assert set(gone.removed) >= {"kernel-directory.md", *(f"directory/{name}.md" for name in pages)} and not list((wiki / "directory").glob("*.md"))
    assert "[[kernel-directory" not in (wiki / "kgagent.md").read_text()


BODY = "".join(f"    value_{i} = x_ref[{i}, :] * {i} + other_{i}(x_ref)\n" for i in range(14))
ROPE = f"""from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def rope_kernel(x_ref, o_ref):
{BODY}    o_ref[...] = value_1

def rope(x, block_q=128):
    return pl.pallas_call(rope_kernel, out_shape=x, compiler_params=pltpu.CompilerParams(), grid=(x.shape[0] // block_q,))(x)

def apply(x):
    return rope(x)

class Layer:
    def __call__(self, x):
        return apply(x)
"""
TEST = """from jax.experimental import pallas as pl
from first.rope import Layer, apply

def test_apply():
    assert apply(1)

def test_layer():
    assert Layer()(1)

def test_other():
    pl.pallas_call(lambda x_ref, o_ref: None, out_shape=1)

def helper(x):
    return x
"""
ODD = """from jax.experimental import pallas as pl
def given(body, x):
    return pl.pallas_call(body, out_shape=x)(x)
"""


CHOICE = """from first import odd, rope
def choose(x, quick):
    module = rope if quick else odd
    return module.rope(x)
"""


@pytest.fixture
def small(tmp_path: Path, graph: Graph) -> Graph:
    """Two packages, the second with a copy of the first's kernel; a test folder; a launcher of given bodies."""
    for name, text in {
        "one/first/__init__.py": "", "one/first/rope.py": ROPE, "one/first/odd.py": ODD + "def rope(x):\n    return x\n", "one/first/choice.py": CHOICE,
        "one/tests/test_rope.py": TEST,
        "two/second/__init__.py": "", "two/second/rope.py": ROPE.replace("o_ref[...] = value_1", "o_ref[...] = value_2"),
    }.items():  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    ingest(graph, [str(tmp_path / "one"), str(tmp_path / "two")])
    return graph


def test_callers_tests_and_copies(small: Graph) -> None:
    entries = {(entry.source, entry.file.rpartition("/")[2], entry.name): entry for entry in read_entries(small)}
    rope = entries["src:one", "rope.py", "rope_kernel"]
    assert (rope.family.slug, rope.backend, rope.body, rope.wrapper) == ("rotary", "mosaic_tpu", "sym:first.rope.rope_kernel", "sym:first.rope.rope")
    assert rope.tunables == ("block_q=128",) and rope.callers == ("sym:first.rope.apply",)
    assert rope.maybe_callers == ("sym:first.choice.choose",)
    by_call, by_class = ("file:one/tests/test_rope.py", 4), ("file:one/tests/test_rope.py", 7)
    assert rope.tests == (by_call, by_class)
    copy = entries["src:two", "rope.py", "rope_kernel"]
    assert [origin for origin, _ in copy.origins] == [rope.id] and copy.origins[0][1] > 0.8 and rope.origins == ()
    given = next(entry for entry in entries.values() if entry.file.endswith("odd.py"))
    assert (given.body, given.no_body) == ("", "given by its caller")
    assert [entry.in_test for entry in entries.values()].count(True) == 1


def test_pages_keep_test_launches_apart_and_say_what_is_unknown(small: Graph) -> None:
    render(small)
    wiki = small.workspace.wiki
    directory = read_directory(small)
    in_tests = next(entry for entry in directory.entries if entry.in_test)
    own, _, tests = (wiki / "directory" / f"kernel-directory-{in_tests.family.slug}.md").read_text().partition("## Launched in tests")
    assert "one/tests/test_rope.py:" not in "".join(row[3] for row in rows_of(own)) and f"one/tests/test_rope.py:{in_tests.line}" in tests
    index = (wiki / "kernel-directory.md").read_text()
    unresolved = index.partition("## Not resolved")[2]
    assert "`one/first/odd.py:3`" in unresolved and "given by its caller" in unresolved
    rotary = (wiki / "directory" / "kernel-directory-rotary.md").read_text()
    assert re.search(r"\[\[first-rope-rope_kernel\\\|first\]\] \d+%", rotary), rotary
    assert "## Copies" in (wiki / "kernels" / "second-rope-rope_kernel.md").read_text()


@pytest.mark.parametrize(
    ("locator", "packed", "day"),
    [
        ("pypi:x==1", datetime(2024, 8, 12, 9, tzinfo=UTC), "2024-08-12"),
        ("git:/r@main", datetime(2025, 1, 2, tzinfo=UTC), "2025-01-02"),
        ("pypi:x==1", datetime(1980, 1, 1, tzinfo=UTC), ""),  # zip's oldest time, from a reproducible build
        ("pypi:x==1", datetime(2020, 2, 2, tzinfo=UTC), ""),  # hatchling's
        ("pypi:x==1", datetime(1970, 1, 1, tzinfo=UTC), ""),  # a rebuilt graph's
        ("pypi:x==1", datetime.now(UTC), ""),  # the time of unpacking
        ("pkg:x", datetime(2024, 8, 12, tzinfo=UTC), ""),  # an installed file's time is that of installing
        ("/some/folder", datetime(2024, 8, 12, tzinfo=UTC), ""),
    ],
)
def test_day(small: Graph, locator: str, packed: datetime, day: str) -> None:
    small.execute("UPDATE source SET locator = ? WHERE key = (SELECT key FROM node WHERE id = 'src:one')", locator)
    small.execute("UPDATE file SET mtime_ns = ? WHERE source = (SELECT key FROM node WHERE id = 'src:one')", int(packed.timestamp() * 1e9))
    assert source_days(small)["src:one"] == day
    assert {entry.day for entry in read_entries(small) if entry.source == "src:one"} == {day}


def test_kernels_that_are_only_listed(tmp_path: Path, graph: Graph) -> None:
    (tmp_path / "lists").mkdir()
    rows = ("| kernel | repo | path | backend | claim |", "|---|---|---|---|---|", "| ring_mha | org/x | x/ring.py | TPU | 2x over XLA |")
    (tmp_path / "lists/kernels.md").write_text("\n".join(rows))
    (tmp_path / "lists/a.py").write_text("x = 1\n")
    ingest(graph, [str(tmp_path / "lists")])
    render(graph)
    text = (graph.workspace.wiki / "kernel-directory.md").read_text()
    assert "## Listed, not ingested" in text and "2x over XLA" in text and "`lists/kernels.md:3`" in text


def test_a_read_only_graph_is_enough(small: Graph) -> None:
    with open_graph(small.workspace) as graph:
        assert len(read_directory(graph).entries) == 4
    assert os.path.isdir(small.workspace.wiki)
