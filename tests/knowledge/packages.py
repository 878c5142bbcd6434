"""Installed packages whose source the concept pages cite, at the versions they were read at."""

from __future__ import annotations

from importlib import metadata, util
from pathlib import Path

READ_AT = {"jax": "0.12.", "tokamax": "0.0.17", "flax": "0.12.12", "optax": "0.2.8", "qwix": "0.1.8"}


def package_file(path: str) -> Path | str:
    """The installed file of `package/rest.py`, or why it can't be checked here."""
    package, _, rest = path.partition("/")
    spec = util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return f"{package} isn't installed"
    version = metadata.version(package)
    if not version.startswith(READ_AT[package]):
        return f"read at {package} {READ_AT[package]}, this is {version}"
    return Path(next(iter(spec.submodule_search_locations))) / rest
