# ruff: noqa: E501  the texts are the compiler's own lines
"""The compiler's messages as data; the texts are its own."""

from __future__ import annotations

import pytest

from kgagent.compiler.messages import amount_bytes, flag_refusal, human_bytes, refusal, refused_flags

VMEM = """RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom:
Ran out of memory in memory space vmem while allocating on stack for %flash.1 = bf16[8,128]{1,0:T(8,128)(2,1)} custom-call(%a), metadata={op_name="jit(f)/flash/pallas_call" stack_frame_id=20}. Scoped allocation with size 75.37M and limit 16.00M exceeded scoped vmem limit by 59.37M. It should not be possible to run out of scoped vmem -
See https://openxla.org/xla/errors/error_1001 for more details."""
HBM = """RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO temporaries (160.50G) exceeds available HBM (31.24G). HLO module: jit_big."""
USED = "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 40.10G of 31.25G hbm. Exceeded hbm capacity by 8.85G."


@pytest.mark.parametrize(
    ("text", "kind", "space", "asked", "limit", "allocation"),
    [
        (VMEM, "vmem_oom", "vmem", round(75.37 * 2**20), 16 * 2**20, "flash.1"),
        (HBM, "hbm_oom", "hbm", round(160.5 * 2**30), round(31.24 * 2**30), ""),
        (USED, "hbm_oom", "hbm", round(40.1 * 2**30), 31.25 * 2**30, ""),
        ("RESOURCE_EXHAUSTED: something else", "oom", "", None, None, ""),
        ("INTERNAL: Mosaic failed to compile TPU kernel: bad layout", "mosaic", "", None, None, ""),
        ("INTERNAL: who knows\nmore", "refused", "", None, None, ""),
        ("", "refused", "", None, None, ""),
    ],
)
def test_messages(text: str, kind: str, space: str, asked: float | None, limit: float | None, allocation: str) -> None:
    error = refusal(text, stage="compile")
    assert (error.kind, error.space, error.asked_bytes, error.limit_bytes, error.allocation) == (kind, space, asked, limit, allocation)
    assert error.what and "\n" not in error.what and error.hint
    assert error.message in text


FLAGS = "noise\nERROR: Illegal value 'abc' specified for flag 'xla_y'\nERROR: Unknown command line flag 'xla_a'\nERROR: Unknown command line flag 'xla_b'\n"


def test_flags_that_libtpu_refuses_are_all_named() -> None:
    assert refused_flags(FLAGS) == ({"xla_y": "abc"}, ("xla_a", "xla_b"))
    unknown, bad = flag_refusal(FLAGS), flag_refusal(FLAGS.splitlines()[1])
    assert unknown is not None and (unknown.kind, unknown.allocation, unknown.what) == ("unknown_flag", "xla_a", "the compiler has no flags xla_a, xla_b")
    assert bad is not None and (bad.kind, bad.allocation, bad.what) == ("bad_flag", "xla_y", "'abc' isn't a value for xla_y")
    assert flag_refusal("noise") is None


def test_the_name_stack_is_kept() -> None:
    assert refusal(VMEM, stage="compile").op_name == "jit(f)/flash/pallas_call"


@pytest.mark.parametrize(("number", "unit", "size"), [("1.5", "K", 1536), ("16.00", "M", 2**24), ("2", "G", 2**31), ("7", "", 7), ("7", "B", 7)])
def test_amounts(number: str, unit: str, size: int) -> None:
    assert amount_bytes(number, unit) == size


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (1536, "1.50 KiB"), (2**24, "16.00 MiB"), (3 * 2**30, "3.00 GiB")])
def test_sizes_for_people(size: int, text: str) -> None:
    assert human_bytes(size) == text
