"""A flags audit on a real program: one flag unknown, one inert, one that changes HLO, one that changes schedules alone."""

from __future__ import annotations

import pytest

from kgagent.compiler import audit_flags
from kgagent.compiler.flags import acts_at_run_time
from kgagent.errors import CompileError
from tests.evidence import programs

pytestmark = pytest.mark.skipif(not programs.HAVE_LIBTPU, reason="libtpu is not installed")


@pytest.mark.slow
def test_every_kind_of_flag() -> None:
    said: list[str] = []
    flags = {
        "xla_tpu_no_such_flag": "1",
        "--xla_tpu_scoped_vmem_limit_kib": "65536",
        "xla_jf_bounds_check": "false",
        "xla_enable_async_all_gather": "true",
        "megascale_grpc_premap_memory_bytes": "1",
        "xla_latency_hiding_scheduler_rerun": "many",
    }
    audit = audit_flags(programs.einsum_export(), "v6e:2x2", flags, progress=said.append)
    rows = {row.flag: row for row in audit.rows}
    assert list(rows) == [flag.removeprefix("--") for flag in flags]
    assert {flag: row.verdict for flag, row in rows.items()} == {
        "xla_tpu_no_such_flag": "unknown",
        "xla_tpu_scoped_vmem_limit_kib": "changes",
        "xla_jf_bounds_check": "changes",
        "xla_enable_async_all_gather": "inert",
        "megascale_grpc_premap_memory_bytes": "run time",
        "xla_latency_hiding_scheduler_rerun": "bad value",
    }
    wider, bounds, inert = rows["xla_tpu_scoped_vmem_limit_kib"], rows["xla_jf_bounds_check"], rows["xla_enable_async_all_gather"]
    assert wider.hlo_equal is False and wider.change is not None and wider.change.changed
    assert (bounds.hlo_equal, bounds.llo_equal) == (True, False) and bounds.schedules_changed
    assert (inert.hlo_equal, inert.llo_equal, inert.schedules_changed) == (True, True, ())
    assert said[0] == "compiling without flags" and len(said) == 5, "refused flags are never compiled with"


@pytest.mark.slow
def test_a_program_that_does_not_compile_cannot_be_audited() -> None:
    with pytest.raises(CompileError, match="doesn't compile without flags"):
        audit_flags(programs.splash_export(2048, 2048), "v5e:2x2", {"xla_enable_async_all_gather": "true"})


@pytest.mark.parametrize(
    ("flag", "listed"),
    [
        ("megascale_grpc_premap_memory_bytes", True),
        ("xla_dump_to", True),
        ("xla_tpu_scoped_vmem_limit_kib", False),
        ("xla_latency_hiding_scheduler_rerun", False),
    ],
)
def test_flags_that_act_at_run_time_are_listed_in_data(flag: str, listed: bool) -> None:
    assert acts_at_run_time(flag) is listed
