"""Facts that concept pages and chips.toml claim to have measured by compiling for TPUs, measured again.

They hold for one pair of jax and libtpu; with others they are skipped rather than wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from kgagent.knowledge import load_chips

PROBE = Path(__file__).with_name("aot_probe.py")
MEASURED_WITH = {"jax": "0.12.", "libtpu": "0.0.50"}
CHIPS = {chip.topologies[0]: chip for chip in load_chips()}

pytestmark = pytest.mark.slow


@lru_cache
def probe(topic: str, *arguments: str) -> Any:
    """What the compiler said, once a topic."""
    for package, version in MEASURED_WITH.items():
        try:
            have = metadata.version(package)
        except metadata.PackageNotFoundError:
            pytest.skip(f"{package} isn't installed")
        if not have.startswith(version):
            pytest.skip(f"measured with {package} {version}*, this is {have}")
    done = subprocess.run([sys.executable, str(PROBE), topic, *arguments], capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CHIPS)
def test_topologies(name: str) -> None:
    found, chip = probe("devices")[name], CHIPS[name]
    assert found["kind"] == chip.device_kind
    assert found["devices"] == found["chips"] * chip.devices_per_chip.value == chip.devices(name)
    assert found["cores"] == chip.cores_per_device.value


@pytest.mark.parametrize("name", CHIPS)
def test_usable_hbm(name: str) -> None:
    assert probe("limits")[name]["hbm_gib"] == [CHIPS[name].hbm_usable_gib_per_device.value]


@pytest.mark.parametrize("name", CHIPS)
def test_vmem_capacity(name: str) -> None:
    assert probe("limits")[name]["vmem_bytes"] == [CHIPS[name].vmem_bytes]


@pytest.mark.parametrize("name", [name for name in CHIPS if not name.startswith("v4")])
def test_default_scoped_limit(name: str) -> None:
    assert probe("limits")[name]["scoped_mib"][0] == CHIPS[name].scoped_vmem_default_mib.value


@pytest.mark.parametrize("name", [name for name in CHIPS if not name.startswith("v4")])
def test_raised_scoped_limit(name: str) -> None:
    assert probe("limits")[name]["raised"] == ""


@pytest.mark.parametrize("name", CHIPS)
def test_unknown_option_refused(name: str) -> None:
    assert "No such compile option" in probe("limits")[name]["unknown"]


def test_named_flags_exist() -> None:
    assert set(probe("flags").values()) == {""}


def test_attention_temporaries() -> None:
    found = probe("attention")
    assert round(found["einsum"]["temp_mib"]) == 26752
    assert found["splash 512"]["temp_mib"] == found["splash 1024"]["temp_mib"] == 0
    assert found["einsum"]["flops"] > 1e12 and not (found["splash 512"]["flops"] or 0) > 0


def test_splash_blocks_against_scoped_limit() -> None:
    assert "size 80.68M and limit 32.00M" in probe("attention")["splash 4096"]


def test_small_scores_stay_in_vmem() -> None:
    found = probe("attention")["small"]
    assert found["scores_in_vmem"] and found["temp_bytes"] == 0 and found["fusions"] >= 4


def test_precision_passes() -> None:
    assert probe("precision") == {"default": 58264, "high": 114276, "highest": 221951}


def test_donation_aliases() -> None:
    assert probe("donation") == {"kept": {"arguments": 512, "output": 256, "alias": 0}, "donated": {"arguments": 512, "output": 256, "alias": 256}}


def test_gathers_become_permutes() -> None:
    found = probe("gathers")
    assert found["collective-permute-done"] == 10 and "all-gather" not in found


def test_scan_and_remat() -> None:
    found = probe("layers", "scan", "scan remat", "scan dots", "unrolled")
    assert {mode: row["temp_mib"] for mode, row in found.items()} == {"scan": 19521, "scan remat": 1537, "scan dots": 5825, "unrolled": 4769}
    assert found["scan remat"]["flops"] / found["scan"]["flops"] == pytest.approx(1.17, abs=0.01)
    assert found["scan"]["flops"] == pytest.approx(1.65e12, rel=0.01) and found["unrolled"]["flops"] == pytest.approx(2.62e13, rel=0.01)
    assert found["scan"]["text_kb"] * 5 < found["unrolled"]["text_kb"]
