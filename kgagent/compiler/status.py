"""Is the TPU compiler here? Answered from package metadata, since importing jax costs seconds."""

from __future__ import annotations

from importlib import metadata, util

from kgagent.compiler.records import CompilerStatus
from kgagent.errors import Unavailable

INSTALL = 'pip install "kgagent[tpu]"'


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def compiler_status() -> CompilerStatus:
    """jax's and libtpu's versions as installed; nothing is imported."""
    jax, jaxlib, libtpu = _version("jax"), _version("jaxlib"), _version("libtpu")
    missing = [name for name, version in (("jax", jax), ("libtpu", libtpu)) if version is None]
    if jax is not None and util.find_spec("flatbuffers") is None:
        missing.append("flatbuffers")
    hint = f"{' and '.join(missing)} not installed: {INSTALL}" if missing else ""
    return CompilerStatus(not missing, jax, jaxlib, libtpu, hint)


def need_compiler() -> CompilerStatus:
    """The status, or `Unavailable` with the command that installs what is missing."""
    status = compiler_status()
    if not status.available:
        raise Unavailable("the TPU compiler isn't installed", where=status.hint.partition(":")[0], hint=INSTALL)
    return status
