"""Chips are data: complete, sourced, and refused with the nearest name when unknown."""

from __future__ import annotations

import pytest

from kgagent.errors import ConfigError, UnknownThing
from kgagent.knowledge import chip_for, load_chips
from kgagent.knowledge.chips import Figure, parse_chips

FOUND = [("v6e:2x4", "v6e", 8), ("v5e:2x2", "v5e", 4), ("v5p:2x2x1", "v5p", 4), ("tpu7x:2x2x1", "tpu7x", 8), ("v4:2x2x1", "v4", 8), ("v6e:1x1x1", "v6e", 1)]
UNKNOWN = [("v6f:2x2", "v6e:2x2"), ("tpu7:2x2x1", "tpu7x:2x2x1"), ("v6e:2by2", "v6e:"), ("v5p:2x2", "v5p:2x2x"), ("v5:2x2x1", "v5p:2x2x1"), ("", "v4:2x2x1")]
WRAPS = [("v6e:16x16", (True, True)), ("v6e:8x16", (False, True)), ("v5p:4x4x8", (True, True, True)), ("v5p:2x2x4", (False, False, False))]


@pytest.mark.parametrize("topology, name, devices", FOUND)
def test_the_chip_of_a_topology(topology: str, name: str, devices: int) -> None:
    chip = chip_for(topology)
    assert (chip.name, chip.devices(topology)) == (name, devices)


@pytest.mark.parametrize("topology, nearest", UNKNOWN)
def test_an_unknown_topology_names_the_nearest(topology: str, nearest: str) -> None:
    with pytest.raises(UnknownThing) as caught:
        chip_for(topology)
    assert f"nearest: {nearest}" in caught.value.hint


@pytest.mark.parametrize("topology, wraps", WRAPS)
def test_wraparound_links(topology: str, wraps: tuple[bool, ...]) -> None:
    assert chip_for(topology).wraps(topology) == wraps


def test_every_figure_has_a_source() -> None:
    chips = load_chips()
    assert [chip.name for chip in chips] == ["v4", "v5e", "v5p", "v6e", "tpu7x"]
    for chip in chips:
        figures = [value for value in (getattr(chip, name) for name in chip.__slots__) if isinstance(value, Figure)]
        assert len(figures) >= 8
        assert all(figure.source.startswith(("https://", "pkg:", "here:")) and figure.value > 0 for figure in figures)


def test_ridge_points() -> None:
    assert {chip.name: round(chip.ridge_flops_per_byte) for chip in load_chips()} == {"v4": 229, "v5e": 241, "v5p": 166, "v6e": 560, "tpu7x": 313}


GOOD = '[[chip]]\nname = "x"\nbf16_tflops = { value = 1, source = "https://a" }\n'
BROKEN = [
    ("[[chip]", "not TOML"), (GOOD, "lacks device_kind, topologies"), (GOOD + "speed = 3\n", "unknown field 'speed'"),
    ('[[chip]]\nname = "x"\nbf16_tflops = 3\n', "bf16_tflops lacks a value or a source"),
]  # fmt: skip


@pytest.mark.parametrize("text, what", BROKEN)
def test_a_broken_file(text: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        parse_chips(text, where="chips.toml")
