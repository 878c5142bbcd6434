"""The environment of child processes: only what is named here, so that a person's flags never leak into a measurement."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

PACKAGE_PARENT = Path(__file__).resolve().parents[2]
KEPT = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


def child_environment(scratch: Path, *, flags: Mapping[str, str] | None = None) -> dict[str, str]:
    """A clean environment on the CPU backend with no compile cache; HOME and TMPDIR are the scratch folder.

    JAX_PLATFORMS is always set: an installed libtpu would otherwise look for a chip, slowly and loudly.
    """
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    fixed = {
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "PYTHONPATH": str(PACKAGE_PARENT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    xla = " ".join(f"--{name.removeprefix('--')}={value}" for name, value in sorted((flags or {}).items()))
    return {**kept, **fixed} | ({"XLA_FLAGS": xla} if xla else {})


def python_module(module: str, *arguments: str) -> list[str]:
    """argv that runs a module of this kgagent with this interpreter, whatever folder it starts in."""
    return [sys.executable, "-P", "-m", module, *arguments]
