"""From a Flax module to the Pallas kernel it calls, through the ways MaxText, EasyDeL and Flax itself hand a callable on."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgagent.graph import Graph
from kgagent.ingest import ingest

from .helpers import edges, graph_in, write_tree
from .test_extract import reaches

OPS = """
from jax.experimental import pallas as pl

def flash_kernel(q, k, v, o): pass

def flash(q, k, v, *, block_q=128):
    return pl.pallas_call(flash_kernel, out_shape=q)(q, k, v)

def dot(q, k, v): return q
"""
REGISTRY = """
class Registry:
    def register(self, name): return lambda f: f
    def get(self, name, backend=None): return None

kernel_registry = Registry()
"""
REGISTERED = """
from registry import kernel_registry
from ops import flash, dot

@kernel_registry.register("flash", "tpu")
def flash_on_tpu(q, k, v): return flash(q, k, v)

@kernel_registry.register("plain", "any")
def plain(q, k, v): return dot(q, k, v)
"""
HEADER = """
import functools
from flax import linen as nn
from flax import nnx
import ops
from ops import dot, flash
from registry import kernel_registry
"""
# a module, and whether its attention reaches the kernel
MODULES = {
    "a field that holds the function": """
class Attention(nn.Module):
    attention_fn: object = flash
    @nn.compact
    def __call__(self, q): return self.attention_fn(q, q, q)
""",
    "an attribute set in __init__": """
class Attention(nnx.Module):
    def __init__(self, rngs): self.attention_fn = flash
    def __call__(self, q): return self.attention_fn(q, q, q)
""",
    "a partial made in setup": """
class Attention(nn.Module):
    def setup(self): self.attention_fn = functools.partial(flash, block_q=64)
    def __call__(self, q): return self.attention_fn(q, q, q)
""",
    "a method the configuration chooses": """
class Attention(nnx.Module):
    def __init__(self, config): self.config = config
    def __call__(self, q): return self.apply_attention(q)
    def apply_attention(self, q):
        if self.config.attention == "flash":
            return self.tpu_flash_attention(q)
        return dot(q, q, q)
    def tpu_flash_attention(self, q):
        @functools.partial(nn.jit, static_argnames=("n",))
        def wrap(q, n=1): return ops.flash(q, q, q)
        return wrap(q)
""",
    "a function the configuration chooses": """
def choose(config):
    if config.attention == "flash":
        return functools.partial(flash, block_q=config.block_q)
    return dot

class Attention(nnx.Module):
    def __init__(self, config): self.attention_fn = choose(config)
    def __call__(self, q): return self.attention_fn(q, q, q)
""",
    "a ternary over modules": """
import ops as other
class Attention(nnx.Module):
    def __init__(self, config): self.kernels = ops if config.tpu else other
    def __call__(self, q): return self.kernels.flash(q, q, q)
""",
    "a table by name": """
TABLE = {"flash": flash, "dot": dot}
class Attention(nnx.Module):
    def __init__(self, config): self.attention_fn = TABLE[config.attention]
    def __call__(self, q): return self.attention_fn(q, q, q)
""",
    "a registry by name": """
class Attention(nnx.Module):
    def __call__(self, q): return kernel_registry.get("flash", backend="tpu")(q, q, q)
""",
    "a registry by a name known when it runs": """
class Attention(nnx.Module):
    def __init__(self, config): self.attention_fn = kernel_registry.get(config.attention)
    def __call__(self, q): return self.attention_fn(q, q, q)
""",
    "Flax's own attention given a function": """
class Attention(nn.Module):
    def setup(self): self.inner = nn.MultiHeadDotProductAttention(num_heads=4, attention_fn=functools.partial(flash, block_q=64))
    def __call__(self, q): return self.inner(q)
""",
    "a module inside a module": """
class Inner(nnx.Module):
    def __init__(self, rngs): self.fn = flash
    def __call__(self, q): return self.fn(q, q, q)
class Attention(nnx.Module):
    def __init__(self, rngs): self.layers = [Inner(rngs) for _ in range(3)]
    def __call__(self, q):
        for layer in self.layers: q = layer(q)
        return q
""",
    "a base's call": """
class Base(nnx.Module):
    def __call__(self, q): return self.attend(q)
    def attend(self, q): raise NotImplementedError
class Attention(Base):
    def attend(self, q): return flash(q, q, q)
""",
}
ELSEWHERE = {
    "another function of that module": "class Attention(nnx.Module):\n    def __call__(self, q): return dot(q, q, q)\n",
    "another name in that registry": 'class Attention(nnx.Module):\n    def __call__(self, q): return kernel_registry.get("plain")(q, q, q)\n',
    "a name of the same spelling in a mapping": 'class Attention(nnx.Module):\n    def __call__(self, q, config): return config.get("flash")(q, q, q)\n',
    "an argument of the same name": "class Attention(nnx.Module):\n    def __call__(self, q, flash): return flash(q, q, q)\n",
}


def model(tmp_path: Path, text: str) -> Path:
    files = {"ops.py": OPS, "registry.py": REGISTRY, "registered.py": REGISTERED, "model.py": HEADER + text}
    return write_tree(tmp_path / "tree", files)


@pytest.mark.parametrize("way", MODULES)
def test_a_flax_module_reaches_its_kernel(tmp_path: Path, way: str) -> None:
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, [str(model(tmp_path, MODULES[way]))])
        assert str(graph.need("sym:model.Attention").data["framework"]).startswith("flax.")
        assert reaches(graph, "sym:model.Attention", "kernel:ops/flash_kernel")


@pytest.mark.parametrize("way", ELSEWHERE)
def test_and_no_kernel_it_never_names(tmp_path: Path, way: str) -> None:
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, [str(model(tmp_path, ELSEWHERE[way]))])
        assert not reaches(graph, "sym:model.Attention", "kernel:ops/flash_kernel")


def registry_edges(graph: Graph) -> set[tuple[str, str, str]]:
    return {(src, dst, how) for src, _, dst, how in edges(graph, "uses") if "[" in src or "[" in dst}


def test_a_registry_says_how_sure_it_is_and_what_left_it(tmp_path: Path) -> None:
    tree = model(tmp_path, MODULES["a registry by name"] + 'def any_of(n): return kernel_registry.get(n)\ndef gone(): return kernel_registry.get("gone")\n')
    flash, plain, any_, gone = (f"registry.kernel_registry[{key}]" for key in ("flash", "plain", "*", "gone"))
    asking = {("model.Attention.__call__", flash, "inferred"), ("model.any_of", any_, "candidate"), ("model.gone", gone, "inferred")}
    offering = {
        (flash, "registered.flash_on_tpu", "inferred"), (plain, "registered.plain", "inferred"),
        (any_, "registered.flash_on_tpu", "candidate"), (any_, "registered.plain", "candidate"),
    }  # fmt: skip
    with graph_in(tmp_path / "ws") as graph:
        ingest(graph, [str(tree)])
        assert registry_edges(graph) == asking | offering
        (tree / "registered.py").unlink()
        ingest(graph, [str(tree)])
        assert registry_edges(graph) == asking
        assert graph.node(f"sym:{plain}") is None
