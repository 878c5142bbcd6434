"""Canonical form and diff: equal programs are equal whatever their names and lines, and what changed is named with its line."""

from __future__ import annotations

import base64
import io
import re

import pytest

from kgagent.evidence.attribution import Attribution
from kgagent.evidence.canonical import canonical_digest, canonical_text
from kgagent.evidence.diff import buffers, diff, executed_rows
from kgagent.evidence.hlo import Module, parse_hlo
from kgagent.evidence.kernels import kernel_calls
from kgagent.evidence.mosaic import body_of
from tests.evidence import programs


def renamed(text: str) -> str:
    """The same program under other names and other lines."""
    text = re.sub(r"%([\w.\-]+)", r"%z_\1", text)
    return re.sub(r"\bline=\d+", "line=7", text)


@pytest.mark.parametrize("optimized", [True, False])
@pytest.mark.parametrize("scanned", [True, False])
def test_names_and_lines_do_not_matter(scanned: bool, optimized: bool) -> None:
    text = programs.train_step_hlo(scanned, optimized)
    if "%" in text:
        assert canonical_digest(parse_hlo(renamed(text))) == canonical_digest(parse_hlo(text))
    assert "metadata" not in canonical_text(parse_hlo(text))


@pytest.mark.parametrize(
    ("old", "new"), [("direction=LT", "direction=LE"), ("lhs_contracting_dims={1}", "lhs_contracting_dims={0}"), ("kind=kLoop", "kind=kInput")]
)
def test_attributes_matter(old: str, new: str) -> None:
    text = programs.train_step_hlo(True, True)
    assert old in text
    assert canonical_digest(parse_hlo(text.replace(old, new, 1))) != canonical_digest(parse_hlo(text))


def test_a_module_equals_itself(splash: Module) -> None:
    same = diff(splash, splash)
    assert same.equal and not same.went and not same.came and not same.changed and same.same > 0


def test_locations_inside_a_kernel_body_do_not_matter_and_its_code_does(splash: Module) -> None:
    """The body is bytecode that holds its own locations: a module whose kernel stands on other lines has other bytes."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _tpu_ext

    (call,) = kernel_calls(splash)
    body = body_of(call.instruction)
    found = re.search(r'"body":"([^"]+)"', call.instruction.text)
    assert body is not None and found is not None and body.decoded
    text = programs_text(splash)

    def with_body(plain: str) -> Module:
        context = ir.Context()
        context.allow_unregistered_dialects = True
        _tpu_ext.register_dialect(context)  # older MLIR takes no memory space that it doesn't know
        with context:
            other = io.BytesIO()
            ir.Module.parse(plain).operation.write_bytecode(other)
        encoded = base64.b64encode(other.getvalue()).decode()
        assert encoded != found.group(1)
        return parse_hlo(text.replace(found.group(1), encoded))

    moved = with_body(body.text)
    assert canonical_digest(moved) == canonical_digest(splash) and diff(splash, moved).equal
    assert "mulf" in body.text
    assert canonical_digest(with_body(body.text.replace("mulf", "addf", 1))) != canonical_digest(splash)


def programs_text(module: Module) -> str:
    """A module's text again, from what the reader kept."""
    blocks = [module.header, ""]
    for computation in module.computations.values():
        opening = f"ENTRY %{computation.name} () -> f32[] {{" if computation.is_entry else f"%{computation.name} () -> f32[] {{"
        blocks += [opening, *(i.text for i in computation.instructions), "}", ""]
    return "\n".join(blocks)


def test_splash_removes_the_score_matrix_and_says_where_it_came_from(einsum: Module, splash: Module) -> None:
    change = diff(einsum, splash)
    assert not change.equal
    largest = change.buffers_went[0]
    assert (largest.shape, largest.buffer_bytes) == ("f32[8,2048,2048]", 8 * 2048 * 2048 * 4)
    assert any("programs.py" in place for place in largest.frames)
    assert [row.kernel for row in change.came if row.kernel] == ["splash_mha_fwd_no_residuals"]
    classes = {delta.key: delta for delta in change.by_class}
    assert (classes["matmul"].went, classes["matmul"].came, classes["kernel"].came) == (2, 0, 1)
    back = diff(splash, einsum)
    assert {row.name for row in back.came} == {row.name for row in change.went}
    assert [(d.key, d.went, d.came) for d in sorted(back.by_class, key=lambda d: d.key)] == [
        (d.key, d.came, d.went) for d in sorted(change.by_class, key=lambda d: d.key)
    ]


def test_the_tables_account_for_every_instruction(train_steps: dict[tuple[bool, bool], Module]) -> None:
    before, after = train_steps[False, True], train_steps[True, True]
    change = diff(before, after)
    rows_before, rows_after = executed_rows(Attribution(before)), executed_rows(Attribution(after))
    assert change.same + change.moved + len(change.changed) + len(change.went) == len(rows_before)
    assert change.same + change.moved + len(change.changed) + len(change.came) == len(rows_after)
    for table in (change.by_class, change.by_line):
        assert sum(delta.went for delta in table) == len(change.went)
        assert sum(delta.came_bytes for delta in table) == sum(row.output_bytes * row.times for row in change.came)


def test_shares_of_origins_sum_to_one_with_the_dominant_first(train_steps: dict[tuple[bool, bool], Module], einsum: Module) -> None:
    for module in (train_steps[False, True], einsum):
        attribution = Attribution(module)
        for computation, instruction, _ in attribution.executed():
            shares = [origin.share for origin in attribution.origins(computation, instruction)]
            assert not shares or sum(shares) == pytest.approx(1)
            assert shares == sorted(shares, reverse=True)


def test_most_of_a_train_step_reaches_the_models_own_lines(train_steps: dict[tuple[bool, bool], Module]) -> None:
    for scanned in (True, False):
        rows = [row for row in executed_rows(Attribution(train_steps[scanned, True])) if row.output_bytes]
        total = sum(row.output_bytes * row.times for row in rows)
        own = sum(row.output_bytes * row.times for row in rows if any("programs.py" in place for place in row.frames))
        assert own / total > 0.95


def test_a_kernel_body_gives_grid_blocks_and_lines(splash: Module) -> None:
    (call,) = kernel_calls(splash)
    body = body_of(call.instruction)
    assert body is not None and call.kernel == body.name == "splash_mha_fwd_no_residuals"
    assert (body.grid, body.steps) == ((8, 4, 4), 128)
    accumulators = ((512, 128),) * 3
    in_outputs = programs.splash_keeps_accumulators_in_outputs()
    assert body.windows == ((1, 512, 128),) * 3 + ((512, 128),) + (accumulators if in_outputs else ()) + ((1, 512, 128),)
    assert body.scratch_bytes == (0 if in_outputs else 3 * 512 * 128 * 4)
    assert body.prefetched == 2
    assert len(body.frames) > 20 and all(frame.file.endswith(".py") for frame in body.frames)


def test_buffers_do_not_count_a_transfer_twice(einsum: Module) -> None:
    written = buffers(Attribution(einsum))
    assert all(not buffer.name.startswith("copy-start") for buffer in written)
    assert written[0].buffer_bytes == max(buffer.buffer_bytes for buffer in written)
