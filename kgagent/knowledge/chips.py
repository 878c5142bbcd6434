"""TPU chips from data/chips.toml: what the compiler allows and what the datasheet promises, each figure with its source.

Data, not code: a new chip is a new table, and nothing here knows one by name.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import resources
from math import prod
from typing import Any

from kgagent.errors import ConfigError, UnknownThing

_SHAPE = re.compile(r"\d+(?:x\d+)*")
_WHERE = "kgagent/knowledge/data/chips.toml"


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and where it can be checked."""

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Chip:
    """One kind of chip; None where nobody publishes or supports the figure."""

    name: str
    device_kind: str
    topologies: tuple[str, ...]
    ici_dims: int
    wrap_multiple: int
    devices_per_chip: Figure
    cores_per_device: Figure
    hbm_usable_gib_per_device: Figure
    vmem_mib_per_core: Figure
    scoped_vmem_default_mib: Figure
    bf16_tflops: Figure
    hbm_gb_per_s: Figure
    int8_tops: Figure | None = None
    fp8_tflops: Figure | None = None
    ici_link_gb_per_s_one_way: Figure | None = None
    ici_chip_gb_per_s_bidirectional: Figure | None = None

    @property
    def hbm_usable_bytes(self) -> int:
        """Bytes a program may use on one device."""
        return round(self.hbm_usable_gib_per_device.value * 2**30)

    @property
    def vmem_bytes(self) -> int:
        """Bytes of VMEM of one core."""
        return round(self.vmem_mib_per_core.value * 2**20)

    @property
    def scoped_vmem_default_bytes(self) -> int:
        """Bytes of VMEM that one operation may allocate unless a flag says otherwise."""
        return round(self.scoped_vmem_default_mib.value * 2**20)

    @property
    def device_share(self) -> float:
        """The part of a chip's peaks that one device has."""
        return 1 / self.devices_per_chip.value

    @property
    def ridge_flops_per_byte(self) -> float:
        """bfloat16 FLOPs a byte of HBM above which an operation is bound by compute."""
        return self.bf16_tflops.value * 1e12 / (self.hbm_gb_per_s.value * 1e9)

    def devices(self, topology: str) -> int:
        """Devices of a topology of this chip."""
        return prod(shape_of(topology)) * round(self.devices_per_chip.value)

    def wraps(self, topology: str) -> tuple[bool, ...]:
        """Which axes of a topology have wraparound links."""
        shape = shape_of(topology)
        full = all(side % self.wrap_multiple == 0 for side in shape)
        # Optical links close whole cubes only; the 2-D chips close any axis that is a full one.
        return tuple(full if self.ici_dims == 3 else side % self.wrap_multiple == 0 for side in shape)


@lru_cache(maxsize=1)
def load_chips() -> tuple[Chip, ...]:
    """All chips, in the order of the file."""
    text = resources.files("kgagent.knowledge").joinpath("data/chips.toml").read_text(encoding="utf-8")
    return parse_chips(text, where=_WHERE)


def parse_chips(text: str, *, where: str) -> tuple[Chip, ...]:
    """Chips from TOML; `ConfigError` names the chip and the field that can't be used."""
    try:
        tables = tomllib.loads(text).get("chip", [])
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}", where=where, hint="fix that line") from error
    return tuple(_chip(table, where) for table in tables)


def chip_for(topology: str) -> Chip:
    """The chip of a topology such as v6e:2x4 (or just v6e); `UnknownThing` names the nearest."""
    name, _, shape = topology.strip().partition(":")
    chips = {chip.name: chip for chip in load_chips()}
    chip = chips.get(name)
    if chip is None:
        near = difflib.get_close_matches(name.lower(), chips, n=1, cutoff=0.3) or list(chips)[:1]
        raise UnknownThing(f"no TPU chip {name!r}", hint=f"nearest: {chips[near[0]].topologies[0]}; known are {', '.join(chips)}")
    if shape and (not _SHAPE.fullmatch(shape) or len(shape_of(topology)) not in (chip.ici_dims, 3)):
        near = difflib.get_close_matches(topology, chip.topologies, n=1, cutoff=0.0)
        raise UnknownThing(f"{topology!r} isn't a topology of {name}", hint=f"nearest: {near[0]}; write {name}:{'x'.join('N' * chip.ici_dims)}")
    return chip


def shape_of(topology: str) -> tuple[int, ...]:
    """Chips along each axis: (2, 4) for v6e:2x4; () where no shape is given."""
    return tuple(int(side) for side in topology.partition(":")[2].split("x") if side.isdigit())


def _chip(table: dict[str, Any], where: str) -> Chip:
    name = str(table.get("name", "?"))
    known = {field.name: field for field in fields(Chip)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            raise ConfigError(f"chip {name}: unknown field {key!r}", where=where, hint=f"known are {', '.join(known)}")
        if "Figure" in str(known[key].type):
            if not isinstance(value, dict) or not isinstance(value.get("value"), (int, float)) or not value.get("source"):
                raise ConfigError(f"chip {name}: {key} lacks a value or a source", where=where, hint=f'write {key} = {{ value = 1.0, source = "…" }}')
            value = Figure(float(value["value"]), str(value["source"]))
        values[key] = tuple(value) if isinstance(value, list) else value
    missing = [key for key, field in known.items() if key not in values and "None" not in str(field.type)]
    if missing:
        raise ConfigError(f"chip {name} lacks {', '.join(missing)}", where=where, hint="add them, each with its source")
    return Chip(**values)
