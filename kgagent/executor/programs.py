"""Exported programs and lane files as a trusted worker uses them; imported only in worker processes, where jax is."""

from __future__ import annotations

import hashlib
import importlib.util
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

LARGEST = sys.float_info.max  # stands for NaN and infinity, which JSON has not


def load_module(folder: Path, name: str) -> ModuleType:
    """Import a lane's own file by path."""
    spec = importlib.util.spec_from_file_location(f"kgagent_lane_{name}", folder / f"{name}.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"no {name}.py in {folder}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_program(path: str) -> Any:
    """The exported program of a file; anything that isn't one raises."""
    import jax.export

    return jax.export.deserialize(bytearray(Path(path).read_bytes()))


def compile_program(exported: Any, inputs: tuple[Any, ...]) -> Any:
    """Compile for this machine, with the shapes of these inputs."""
    import jax

    return jax.jit(exported.call).lower(*inputs).compile()


@contextmanager
def double_precision() -> Iterator[None]:
    """64-bit types for the oracle alone; the switch moved between jax versions."""
    import jax

    if hasattr(jax, "enable_x64"):
        with jax.enable_x64(True):
            yield
    else:
        from jax.experimental import enable_x64

        with enable_x64():
            yield


def describe(values: Any) -> tuple[str, ...]:
    """Each leaf as `float32[1,8,1024,64]`, after the structure where it is more than one array."""
    import jax

    leaves, tree = jax.tree_util.tree_flatten(values)
    shapes = tuple(f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]" for leaf in leaves)
    return shapes if len(leaves) == 1 and str(tree) == "PyTreeDef(*)" else (str(tree), *shapes)


def fingerprint(values: Any) -> str:
    """SHA-256 over the bytes of all arrays."""
    import jax
    import numpy as np

    digest = hashlib.sha256()
    for leaf in jax.tree_util.tree_leaves(values):
        digest.update(np.ascontiguousarray(np.asarray(leaf)).view(np.uint8).tobytes())
    return digest.hexdigest()


def differences(got: Any, expected: Any) -> tuple[float, float]:
    """Largest and mean absolute difference in float64; `LARGEST` where shapes differ or anything isn't finite."""
    import jax
    import numpy as np

    mine, theirs = jax.tree_util.tree_leaves(got), jax.tree_util.tree_leaves(expected)
    if [leaf.shape for leaf in mine] != [leaf.shape for leaf in theirs]:
        return LARGEST, LARGEST
    apart = [np.abs(np.asarray(a).astype(np.float64) - np.asarray(b).astype(np.float64)) for a, b in zip(mine, theirs, strict=True)]
    largest = max((float(a.max()) for a in apart if a.size), default=0.0)
    mean = sum(float(a.sum()) for a in apart) / max(sum(a.size for a in apart), 1)
    return (largest, mean) if math.isfinite(largest) and math.isfinite(mean) else (LARGEST, LARGEST)


def all_finite(values: Any) -> bool:
    import jax
    import numpy as np

    leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(values)]
    return all(bool(np.isfinite(leaf.astype(np.float64)).all()) for leaf in leaves if leaf.dtype != bool)
