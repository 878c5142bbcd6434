"""File texts that define, rename, re-export, shadow, break and launch; the property test puts any of them anywhere."""

FUNCTION = """
import pkg.a

def f(block_q: int = 128):
    return pkg.a.g(f)
"""
CLASS = """
from pkg.b import f as g
from pkg.b import *

class C:
    block_k: int = 64

    def run(self):
        return self.go() + g()

    def go(self):
        return 1
"""
REEXPORT = """
from .a import C as C
from . import b

class D(C):
    def go(self):
        return super().go() + b.f()

__all__ = ["C", "D"]
"""
LAUNCH = """
from functools import partial
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def body(ref, *, n):
    ref[...] = n

def g(x, config: "C", tile_m=8):
    return pl.pallas_call(partial(body, n=2), grid=(4,), compiler_params=pltpu.CompilerParams())(x)

from pkg.a import C
"""
WRAPPER = """
from pkg.c import body, g
from jax.experimental import pallas as pl

def launch(kernel, x):
    return pl.pallas_call(kernel, grid=(1,))(x)

def f(x):
    return launch(body, x), g(x)
"""
REPEATED = """
def f(): return h()
def h(): return f()
def f(): return 2
"""
BROKEN = "x = (\n"
MISSING = """
import missing.thing as t

def g(): return t.a.b(), pkg

import pkg.sub.deep as pkg_sub
"""
REGISTRY = """
from pkg.b import f as g
class Registry: pass
kernel_registry = Registry()

@kernel_registry.register("one")
def f(x): return g(x)

@kernel_registry.register
class C: pass

kernel_registry.register("two", g)
"""
ASKING = """
from pkg.a import kernel_registry
def g(n): return kernel_registry.get("one", backend=n)(n), kernel_registry.get(n)
"""
TEXTS = ("", FUNCTION, CLASS, REEXPORT, LAUNCH, WRAPPER, REPEATED, BROKEN, MISSING, REGISTRY, ASKING)
