"""Modules that several tests read; each is compiled once a session."""

from __future__ import annotations

from functools import cache

import pytest

from kgagent.compiler import Compiled, aot_compile
from kgagent.evidence.hlo import Module, parse_hlo
from tests.evidence import programs


@cache
def compiled_once(exported: bytes, topology: str) -> Compiled:
    """A compilation that several tests read."""
    return aot_compile(exported, topology, wall_s=120)


def compiled(exported: bytes) -> Compiled:
    """The same, which must succeed."""
    result = compiled_once(exported, "v6e:2x2")
    assert result.status == "ok", result.error
    return result


@pytest.fixture(scope="session")
def einsum() -> Module:
    if not programs.HAVE_LIBTPU:
        pytest.skip("libtpu is not installed")
    return parse_hlo(compiled(programs.einsum_export()).hlo_text)


@pytest.fixture(scope="session")
def splash() -> Module:
    if not programs.HAVE_LIBTPU:
        pytest.skip("libtpu is not installed")
    return parse_hlo(compiled(programs.splash_export()).hlo_text)


@pytest.fixture(scope="session")
def train_steps() -> dict[tuple[bool, bool], Module]:
    """(scanned, optimized) -> module, on the CPU."""
    if not programs.HAVE_JAX:
        pytest.skip("jax is not installed")
    return {(s, o): parse_hlo(programs.train_step_hlo(s, o)) for s in (True, False) for o in (True, False)}
