"""Which chip a topology name means, and how a tracer pretends to be on it.

Kernels that ask for their chip (`pltpu.get_tpu_info`, core meshes) read it from an abstract mesh when they are traced.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources

from kgagent.errors import UsageError


@dataclass(frozen=True, slots=True)
class Target:
    """A device as the compiler names it; `cores` a device, as a kernel sees them."""

    family: str
    device_kind: str
    cores: int


@cache
def _families() -> dict[str, dict[str, object]]:
    return tomllib.loads(resources.files("kgagent.compiler").joinpath("topologies.toml").read_text(encoding="utf-8"))


def known_topologies() -> tuple[str, ...]:
    """Names that have been tried; others of the same families work too where the compiler says so."""
    return tuple(str(name) for family in _families().values() for name in _list(family["known"]))


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def target_of(topology: str) -> Target:
    """The device behind `v6e:2x4`; `UsageError` names the known topologies."""
    family = topology.partition(":")[0]
    facts = _families().get(family)
    if facts is None or ":" not in topology:
        raise UsageError(f"unknown topology {topology!r}", hint=f"one of {', '.join(known_topologies())}, or another size of these families")
    return Target(family, str(facts["device_kind"]), int(str(facts["cores"])))


@contextmanager
def target_context(topology: str) -> Iterator[None]:
    """Trace inside this as if on the topology's chip; imports jax, so only for tracing processes.

    The mesh has no axes: an axis, even of size one, would put sharding types on the traced values.
    """
    import jax

    target = target_of(topology)
    device = jax.sharding.AbstractDevice(device_kind=target.device_kind, num_cores=target.cores, platform="tpu")
    mesh = jax.sharding.AbstractMesh((), (), (), abstract_device=device)
    with jax.sharding.use_abstract_mesh(mesh):
        yield
