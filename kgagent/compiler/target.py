"""Which chip a topology name means, and how a tracer pretends to be on it.

Kernels that ask for their chip (`pltpu.get_tpu_info`, core meshes) read it from an abstract mesh when they are traced.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kgagent.errors import UsageError
from kgagent.knowledge.chips import load_chips


@dataclass(frozen=True, slots=True)
class Target:
    """A device as the compiler names it; `cores` a device, as a kernel sees them."""

    family: str
    device_kind: str
    cores: int


def known_topologies() -> tuple[str, ...]:
    """The first names of every chip; others of the same chips work too where the compiler says so."""
    return tuple(name for chip in load_chips() for name in chip.topologies[:3])


def target_of(topology: str) -> Target:
    """The device behind `v6e:2x4`; `UsageError` names known topologies."""
    family = topology.partition(":")[0]
    chip = next((chip for chip in load_chips() if chip.name == family), None)
    if chip is None or ":" not in topology:
        raise UsageError(f"unknown topology {topology!r}", hint=f"for example {', '.join(known_topologies())}")
    return Target(chip.name, chip.device_kind, round(chip.cores_per_device.value))


def describe(topology: str) -> Any:
    """The compiler's description of a topology; imports jax and loads libtpu, so only for compiling processes.

    libtpu before 0.0.50 divides any layout into hosts of its default size and so refuses a single chip unless told that a host has one.
    """
    from jax.experimental import topologies

    layout = topology.partition(":")[2].split("x")
    options = {"chips_per_host_bounds": [1, 1, 1]} if set(layout) == {"1"} else {}
    return topologies.get_topology_desc(platform="tpu", topology_name=topology, **options)


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
