"""One small source a row: what it defines, calls, reads and launches, and how each was resolved."""
# ruff: noqa: E501  (a row is one piece of source and what it must give)

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from textwrap import dedent

import pytest

from kgagent.graph import Graph
from kgagent.ingest import ingest, list_kernels
from kgagent.ingest.copies import likeness, sketch

from .helpers import edges, graph_in, write_tree

LIBRARY = {
    "lib/__init__.py": "from lib.ops import scale as scale\nfrom lib.ops import add as plus\n",
    "lib/ops.py": "def scale(x): return x\ndef add(x): return x\nclass Box:\n    def get(self): return 1\ndef make() -> Box: return Box()\nBOX = Box()\nRENAMED = add\n",
    "lib/base.py": "class Base:\n    def run(self): return self.step()\n    def step(self): raise NotImplementedError\n",
}

# source of m.py, an edge it must make (src below m, type, dst, how)
EDGES = [
    ("from lib.ops import add\ndef f(): return add(1)", ("f", "calls", "lib.ops.add", "exact")),
    ("from lib.ops import add as plus\ndef f(): return plus(1)", ("f", "calls", "lib.ops.add", "alias")),
    ("import lib.ops as o\ndef f(): return o.add(1)", ("f", "calls", "lib.ops.add", "alias")),
    ("import lib\ndef f(): return lib.ops.add(1)", ("f", "calls", "lib.ops.add", "exact")),
    ("import lib\ndef f(): return lib.scale(1)", ("f", "calls", "lib.ops.scale", "re-export")),
    ("import lib\ndef f(): return lib.plus(1)", ("f", "calls", "lib.ops.add", "re-export")),
    ("from lib import plus\ndef f(): return plus(1)", ("f", "calls", "lib.ops.add", "re-export")),
    ("from lib.ops import RENAMED\ndef f(): return RENAMED(1)", ("f", "calls", "lib.ops.add", "re-export")),
    ("from lib.ops import *\ndef f(): return add(1)", ("f", "calls", "lib.ops.add", "re-export")),
    ("def f(): return g()\ndef g(): return 1", ("f", "calls", "m.g", "exact")),
    ("def f():\n    def g(): return 1\n    return g()", ("f", "calls", "m.f.g", "exact")),
    ("class A:\n    def f(self): return self.g()\n    def g(self): return 1", ("A.f", "calls", "m.A.g", "inferred")),
    ("from lib.base import Base\nclass A(Base):\n    def step(self): return super().step()", ("A.step", "calls", "lib.base.Base.step", "inferred")),
    ("from lib.base import Base\nclass A(Base):\n    def f(self): return self.run()", ("A.f", "calls", "lib.base.Base.run", "inferred")),
    ("from lib.base import Base\nclass A(Base):\n    def step(self): return 1", ("A", "uses", "m.A.step", "inferred")),
    ("from lib.ops import Box\nclass A:\n    def __init__(self): self.b = Box()\n    def f(self): return self.b.get()", ("A.f", "calls", "lib.ops.Box.get", "inferred")),
    ("from lib.ops import Box\ndef f(b: Box): return b.get()", ("f", "calls", "lib.ops.Box.get", "inferred")),
    ("from lib.ops import Box\ndef f(b: 'Box | None'): return b.get()", ("f", "calls", "lib.ops.Box.get", "inferred")),
    ("from lib.ops import make\ndef f(): return make().get()", ("f", "calls", "lib.ops.Box.get", "inferred")),
    ("from lib.ops import BOX\ndef f(): return BOX.get()", ("f", "calls", "lib.ops.Box.get", "inferred")),
    ("import functools\nfrom lib.ops import add\ng = functools.partial(add, 1)\ndef f(): return g()", ("g", "uses", "lib.ops.add", "exact")),
    ("import functools\nfrom lib.ops import add\ng = functools.partial(add, 1)\ndef f(): return g()", ("f", "calls", "m.g", "exact")),
    ("import functools\npartial = functools.partial\ndef f(): return partial(f)", ("f", "calls", "functools.partial", "alias")),
    ("from lib.ops import add\ndef f():\n    g = add\n    return g(1)", ("f", "calls", "lib.ops.add", "inferred")),
    ("from lib.ops import add, scale\ndef f(c):\n    g = add if c else scale\n    return g(1)", ("f", "calls", "lib.ops.scale", "candidate")),
    ("from lib.ops import add\ndef f(g=add): return g(1)", ("f", "calls", "lib.ops.add", "inferred")),
    ("from lib.ops import add\nTABLE = {}\nTABLE['x'] = add\ndef f(n): return TABLE[n](1)", ("TABLE", "uses", "lib.ops.add", "exact")),
    ("from lib.ops import add\nTABLE = {}\nTABLE['x'] = add\ndef f(n): return TABLE[n](1)", ("f", "uses", "m.TABLE", "exact")),
    ("import lib.ops, lib.base\ndef pick(n):\n    if n: return lib.ops\n    return lib.base\ndef f(): return pick(1).add(1)", ("f", "calls", "lib.ops.add", "candidate")),
    ("from lib.ops import add, scale\ndef pick(n):\n    if n: return add\n    return scale\ndef f(): return pick(1)(2)", ("f", "calls", "lib.ops.scale", "candidate")),
    ("from lib.ops import add, scale\ndef pick(n): return add if n else scale\ndef f():\n    g = pick(1)\n    return g(2)", ("f", "calls", "lib.ops.add", "candidate")),
    ("import functools\nfrom lib.ops import add\ndef pick(n):\n    g = functools.partial(add, n)\n    return g\ndef f(): return pick(1)(2)", ("f", "calls", "lib.ops.add", "inferred")),
    ("import jax\n@jax.jit\ndef f(x): return x", ("", "uses", "jax.jit", "exact")),
    ("import jax.numpy as jnp\ndef f(x): return jnp.dot(x, x)", ("f", "calls", "jax.numpy.dot", "alias")),
    ("def f(): return lib_gone()\nfrom lib.ops import gone as lib_gone", ("f", "calls", "lib.ops.gone", "unresolved")),
    ("import jax\n@jax.custom_vjp\ndef f(x): return x\ndef fwd(x): return x\ndef bwd(r, g): return g\nf.defvjp(fwd, bwd)", ("f", "uses", "m.bwd", "exact")),
    ("try:\n    from lib.ops import add as g\nexcept ImportError:\n    from lib.ops import scale as g\ndef f(): return g()", ("f", "calls", "lib.ops.scale", "candidate")),
]  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("library"), LIBRARY)


@pytest.mark.parametrize("source, edge", EDGES)
def test_edges(tmp_path: Path, library: Path, source: str, edge: tuple[str, str, str, str]) -> None:
    tree = write_tree(tmp_path / "tree", {"m.py": source + "\n"})
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, [str(library), str(tree)])
        src, type_, dst, how = edge
        found = edges(graph, type_)
        assert (f"m.{src}" if src else "m", type_, dst, how) in found, sorted(e for e in found if e[0].startswith("m"))


@pytest.mark.parametrize(
    "source",
    [
        "def f(x): return x.add(1)",  # a method of something unknown is no function of that name elsewhere
        "def f(add): return add(1)",
        "def f():\n    for add in range(3): add(1)",
        "class A:\n    def add(self): pass\n    def f(self, other): return other.add()",
        "def f(): return add(1)",
    ],
)
def test_a_bare_name_makes_no_edge(tmp_path: Path, library: Path, source: str) -> None:
    tree = write_tree(tmp_path / "tree", {"m.py": source + "\n"})
    with graph_in(tmp_path / "ws") as graph:
        (_, report) = ingest(graph, [str(library), str(tree)])
        assert {edge for edge in edges(graph, "calls") if edge[0].startswith("m.") and "add" in edge[2]} == set()
        assert report.unresolved == 1 or "range" in source


HEADER = """
import functools
from functools import partial
import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas import triton as plt
import helpers

def body(x_ref, o_ref, *, n=1): o_ref[...] = x_ref[...]
def other(x_ref, o_ref): pass
TPU = pltpu.CompilerParams()
"""
HELPERS = """
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

def launch(kernel, shape, params=plt.CompilerParams()):
    return pl.pallas_call(kernel, out_shape=shape, compiler_params=params)

def closing(kernel, shape):
    def wrapped(*refs):
        return kernel(*refs)
    return pl.pallas_call(wrapped, out_shape=shape)

def twice(fn, shape):
    return launch(fn, shape)
"""
# code, then of its launch: body, how, backend, form
LAUNCHES = [
    ("def f(x): return pl.pallas_call(body, out_shape=x)(x)", "body", "exact", "unresolved", "call"),
    ("def f(x): return pl.pallas_call(partial(body, n=2), out_shape=x, compiler_params=pltpu.CompilerParams())(x)", "body", "inferred", "mosaic_tpu", "call"),
    ("def f(x):\n    k = partial(body, n=2)\n    return pl.pallas_call(k, out_shape=x, compiler_params=TPU)(x)", "body", "inferred", "mosaic_tpu", "call"),
    ("def f(x):\n    k = body\n    k = other\n    return pl.pallas_call(k, out_shape=x)(x)", "other", "inferred", "unresolved", "call"),
    ("def f(x, c):\n    k = body if c else other\n    return pl.pallas_call(k, out_shape=x)(x)", "body|other", "candidate", "unresolved", "call"),
    ("def f(x):\n    return pl.pallas_call(lambda i, o: body(i, o), out_shape=x)(x)", "body", "inferred", "unresolved", "call"),
    ("def f(x):\n    @plgpu.kernel(out_type=x)\n    def k(i, o): pass\n    return k(x)", "k", "exact", "mosaic_gpu", "decorator"),
    ("def f(x):\n    @functools.partial(pl.pallas_call, out_shape=x, grid=(1,))\n    def k(i, o): pass\n    return k(x)", "k", "exact", "unresolved", "partial decorator"),
    ("@pl.kernel(out_type=1, mesh=pltpu.TensorCoreMesh())\ndef k(i, o): pass", "k", "exact", "mosaic_tpu", "decorator"),
    ("def f(x): return pl.kernel(out_type=x, mesh=pltpu.TensorCoreMesh())(body)(x)", "body", "exact", "mosaic_tpu", "call of call"),
    ("call = partial(pl.pallas_call, grid=(2,))\ndef f(x): return call(body, out_shape=x)(x)", "body", "exact", "unresolved", "call"),
    ("def f(x): return helpers.launch(body, x)(x)", "body", "exact", "triton", "wrapper"),
    ("def f(x): return helpers.launch(shape=x, kernel=body, params=TPU)(x)", "body", "exact", "triton", "wrapper"),
    ("def f(x): return helpers.closing(partial(body, n=1), x)(x)", "body", "inferred", "mosaic_tpu", "wrapper"),
    ("def f(x): return helpers.twice(body, x)(x)", "body", "exact", "triton", "wrapper"),
    ("def f(kernel, x): return pl.pallas_call(kernel, out_shape=x)(x)", "", "unresolved", "unresolved", "call"),
    ("def make():\n    def inner(i, o): pass\n    return inner\ndef f(x): return pl.pallas_call(make(), out_shape=x)(x)", "inner", "inferred", "unresolved", "call"),
    ("def f(x): return pl.pallas_call(body, out_shape=x, interpret=True)(x)", "body", "exact", "interpret", "call"),
    ("def f(a, b): pltpu.emit_pipeline(body, grid=(4,))(a, b)", "body", "exact", "mosaic_tpu", "call"),
    ("class K:\n    def body(self, i, o): pass\n    def f(self, x): return pl.pallas_call(self.body, out_shape=x)(x)", "body", "inferred", "unresolved", "call"),
]  # fmt: skip


@pytest.mark.parametrize("code, body, how, backend, form", LAUNCHES)
def test_launches(tmp_path: Path, code: str, body: str, how: str, backend: str, form: str) -> None:
    source = HEADER + code + "\n"
    if backend == "unresolved":
        source = source.replace("TPU = pltpu.CompilerParams()\n", "")
    tree = write_tree(tmp_path / "tree", {"m.py": source, "helpers.py": HELPERS})
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, [str(tree)])
        (kernel,) = (k for k in list_kernels(graph) if k.path == "m.py")
        bodies = kernel.bodies or ((kernel.body.id,) if kernel.body else ())
        assert "|".join(b.rsplit(".", 1)[-1] for b in bodies) == body
        assert (kernel.body_how, kernel.backend, kernel.form) == (how, backend, form)
        assert any(mark in source.splitlines()[kernel.line - 1] for mark in ("pallas_call", "kernel(", "emit_pipeline", "call(", "helpers.", "partial("))


def test_rows_say_how_a_tunable_is_known_and_keep_a_body_whole(tmp_path: Path) -> None:
    terms = " + ".join(f"i[{n}]" for n in range(60))
    code = f"def f(x, block_q=128):\n    return pl.pallas_call(lambda i, o: o.set({terms}), out_shape=x, grid=(x // block_q,))(x)\n"
    tree = write_tree(tmp_path / "tree", {"m.py": HEADER.replace("import helpers\n", "") + code})
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, [str(tree)])
        (kernel,) = list_kernels(graph)
        assert [(t.id, t.default, t.how) for t in kernel.tunables] == [("knob:m.f.block_q", "128", "inferred")]
        assert kernel.body_text == f"lambda i, o: o.set({terms})"


def test_gradient_pairs_say_which_is_which(tmp_path: Path) -> None:
    source = "import jax\n@jax.custom_vjp\ndef f(x): return x\ndef fwd(x): return x\ndef bwd(r, g): return g\nf.defvjp(fwd, bwd)\n"
    tree = write_tree(tmp_path / "tree", {"m.py": source})
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, [str(tree)])
        roles = {edge.dst: (edge.data["role"], edge.line) for edge in graph.edges(src="sym:m.f", type="uses") if edge.data}
        assert roles == {"sym:m.fwd": ("forward", 6), "sym:m.bwd": ("backward", 6)}


SYMBOLS = """
'''The module.'''
from typing import NamedTuple
from dataclasses import dataclass, field

@dataclass(frozen=True)
class Config:
    '''Sizes.'''
    block_q: int = 128  # rows of q
    # columns,
    # of kv
    block_kv: int = field(default=256)
    names: list[str] = None

class Pair(NamedTuple):
    first: int
    second: int = 2

LIMIT = 3

def outer(a, *, b: int = 1) -> int:
    '''Doc.

    More.
    '''
    def inner(): pass
    return a

__all__ = ["outer"]
"""


def test_symbols_with_lines_defaults_and_words(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", {"m.py": SYMBOLS})
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, [str(tree)])
        rows = graph.rows("SELECT id, line_start, line_end, doc, data FROM node WHERE kind = 'symbol' AND source IS NOT NULL")
        found = {id_.removeprefix("sym:"): (start, end, doc, json.loads(data)) for id_, start, end, doc, data in rows}
        assert found["m"][2] == "The module."
        assert found["m.Config"][:3] == (6, 13, "Sizes.")
        assert found["m.Config"][3]["decorators"] == ["dataclass(frozen=True)"]
        assert found["m.Config.block_q"] == (9, 9, "rows of q", {"kind": "field", "type": "int", "default": "128"})
        assert found["m.Config.block_kv"][2:] == ("columns,\nof kv", {"kind": "field", "type": "int", "default": "field(default=256)"})
        assert found["m.Pair.second"][3] == {"kind": "field", "type": "int", "default": "2"}
        assert found["m.LIMIT"][3] == {"kind": "constant", "value": "3"}
        assert found["m.outer"][2:] == ("Doc.\n\nMore.", {"kind": "function", "parameters": "(a, *, b: int = 1)", "returns": "int"})
        assert found["m.outer.inner"][0] == 26
        knobs = graph.rows("SELECT id, line_start, json_extract(data, '$.default') FROM node WHERE kind = 'knob' ORDER BY id")
        assert knobs == [("knob:m.Config.block_kv", 12, "field(default=256)"), ("knob:m.Config.block_q", 9, "128")]


FLAX = """
from flax import linen as nn
from flax import nnx
import jax
from functools import partial
from ops import attend

class Attention(nn.Module):
    attention_fn: object = attend

    @nn.compact
    def __call__(self, q, k, v):
        return self.attention_fn(q, k, v)

class Block(nnx.Module):
    def __init__(self):
        self.attention = Attention()

    def __call__(self, x):
        return self.attention(x, x, x)

class Deep(Block):
    pass

@partial(jax.jit, static_argnames=("n",), donate_argnums=0)
def step(x, n): return Block()(x)

def layers(x):
    return jax.lax.scan(step, x, None, length=4)
"""
OPS = """
from jax.experimental import pallas as pl

def body(q, k, v, o): pass

def attend(q, k, v):
    return pl.pallas_call(body, out_shape=q)(q, k, v)
"""


def reaches(graph: Graph, start: str, goal: str) -> bool:
    seen, queue = {start}, deque([start])
    while queue:
        for edge in graph.edges(src=queue.popleft()):
            if edge.type in ("calls", "uses", "wraps") and edge.dst not in seen:
                seen.add(edge.dst)
                queue.append(edge.dst)
    return goal in seen


def test_flax_modules_and_the_kernels_they_reach(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", {"model.py": FLAX, "ops.py": OPS})
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, [str(tree)])
        frameworks = {id_: graph.need(f"sym:model.{id_}").data.get("framework") for id_ in ("Attention", "Block", "Deep", "step")}
        assert frameworks == {"Attention": "flax.linen", "Block": "flax.nnx", "Deep": "flax.nnx", "step": None}
        for start in ("Attention", "Block", "layers"):
            assert reaches(graph, f"sym:model.{start}", "kernel:ops/body"), start
        assert graph.need("sym:model.step").data["surfaces"] == [
            {"api": "jax.jit", "line": 25, "arguments": {"static_argnames": '("n",)', "donate_argnums": "0"}}
        ]
        assert graph.need("sym:model.layers").data["surfaces"] == [{"api": "jax.lax.scan", "line": 29, "arguments": {"length": "4"}}]
        write_tree(tree, {"model.py": FLAX.replace("nn.Module", "object").replace("nnx.Module", "object")})
        ingest(graph, [str(tree)])
        assert "framework" not in graph.need("sym:model.Deep").data


LONG = [f"    acc_{i} = x_ref[{i}] * y_ref[{i}]" for i in range(20)]


@pytest.mark.parametrize("changed, how", [((), "exact"), ((3, 11), "inferred"), (range(20), None)])
def test_copies_across_sources(tmp_path: Path, changed: tuple[int, ...], how: str | None) -> None:
    def kernel(lines: list[str]) -> str:
        launch = "def f(x): return pl.pallas_call(body, out_shape=x)(x)"
        return "\n".join(["from jax.experimental import pallas as pl", "def body(x_ref, y_ref, o_ref):", *lines, launch, ""])

    copy = [line.replace("*", "+") if i in changed else line + "  # same" for i, line in enumerate(LONG)]
    first = write_tree(tmp_path / "first", {"one.py": kernel(LONG)})
    second = write_tree(tmp_path / "second", {"two.py": kernel(copy)})
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, [str(first), str(second)])
        found = [(e.src, e.dst, e.how) for e in graph.edges(type="vendored_from")]
        assert found == ([("kernel:two/body", "kernel:one/body", how)] if how else [])


@pytest.mark.parametrize("name, namesakes, tied", [("gmm_kernel", 0, True), ("gmm_kernel", 5, False), ("kernel", 0, False), ("_kernel", 0, False)])
def test_a_specific_name_makes_a_far_copy_near(tmp_path: Path, name: str, namesakes: int, tied: bool) -> None:
    def kernel(lines: list[str], module: str) -> str:
        return "\n".join(
            [
                HEADER.replace("import helpers\n", ""),
                f"def {name}(x_ref, y_ref, o_ref):",
                *lines,
                f"def {module}(x): return pl.pallas_call({name}, out_shape=x)(x)",
                "",
            ]
        )

    later = [line.replace("*", "+") if i < 12 else line for i, line in enumerate(LONG)]
    assert 0.15 < likeness(sketch(LONG), sketch(later)) < 0.5
    others = {f"other{n}.py": kernel([f"    z_{n} = {n} + {i}" for i in range(10)], f"other{n}") for n in range(namesakes)}
    first = write_tree(tmp_path / "first", {"one.py": kernel(LONG, "one")} | others)
    second = write_tree(tmp_path / "second", {"two.py": kernel(later, "two")})
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, [str(first), str(second)])
        found = [(e.src, e.dst, e.how) for e in graph.edges(type="vendored_from")]
        assert found == ([(f"kernel:two/{name}", f"kernel:one/{name}", "inferred")] if tied else [])


def test_sketches_estimate_likeness() -> None:
    lines = dedent("\n".join(LONG)).split("\n")
    assert likeness(sketch(lines), sketch(lines)) == 1.0
    assert likeness(sketch(lines), sketch(lines[:10] + ["z = 1"] * 10)) < 0.6
    assert sketch(lines[:4]) == []
