"""Trip counts, call counts and async pairs, where the answer is known from the program."""

from __future__ import annotations

import pytest

from kgagent.evidence.attribution import Attribution
from kgagent.evidence.calls import async_pairs, counts, loops
from kgagent.evidence.cost import matmul_flops
from kgagent.evidence.hlo import Module, parse_hlo
from tests.evidence import programs
from tests.evidence.conftest import compiled

LOOP = """HloModule loop

%body (t: (s32[], f32[4], s32[])) -> (s32[], f32[4], s32[]) {{
  %t = (s32[], f32[4]{{0}}, s32[]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %step = s32[] constant({step})
  %j = s32[] add(%i, %step)
  %x = f32[4]{{0}} get-tuple-element(%t), index=1
  %n = s32[] get-tuple-element(%t), index=2
  ROOT %r = (s32[], f32[4]{{0}}, s32[]) tuple(%j, %x, %n)
}}

%cond (c: (s32[], f32[4], s32[])) -> pred[] {{
  %c = (s32[], f32[4]{{0}}, s32[]) parameter(0)
  %ci = s32[] get-tuple-element(%c), index=0
  %cn = s32[] get-tuple-element(%c), index=2
  ROOT %lt = pred[] compare({operands}), direction={direction}
}}

ENTRY %main (x: f32[4]) -> (s32[], f32[4], s32[]) {{
  %x0 = f32[4]{{0}} parameter(0)
  %start = s32[] constant({start})
  %bound = s32[] constant({bound})
  %init = (s32[], f32[4]{{0}}, s32[]) tuple(%start, %x0, %bound)
  ROOT %w = (s32[], f32[4]{{0}}, s32[]) while(%init), condition=%cond, body=%body
}}
"""
FORWARD, BACKWARD = "%ci, %cn", "%cn, %ci"


@pytest.mark.parametrize(
    ("start", "bound", "step", "operands", "direction", "trips"),
    [
        (0, 12, 1, FORWARD, "LT", 12),
        (0, 12, 1, BACKWARD, "GT", 12),
        (0, 12, 1, FORWARD, "LE", 13),
        (3, 12, 4, FORWARD, "LT", 3),
        (12, 0, -1, FORWARD, "GT", 12),
        (12, 0, -5, FORWARD, "GE", 3),
        (0, 12, 3, FORWARD, "NE", 4),
        (0, 11, 3, FORWARD, "NE", None),
        (5, 5, 1, FORWARD, "LT", 0),
        (0, 12, -1, FORWARD, "LT", None),
        (0, 12, 1, "%ci, %ci", "LT", None),
    ],
)
def test_trips_follow_from_condition_step_and_start(start: int, bound: int, step: int, operands: str, direction: str, trips: int | None) -> None:
    module = parse_hlo(LOOP.format(start=start, bound=bound, step=step, operands=operands, direction=direction))
    (loop,) = loops(module)
    assert loop.trips == trips
    assert counts(module)["body"].exact is (trips is not None)
    assert counts(module)["body"].times == (1 if trips is None else trips)


def test_a_bound_that_the_body_changes_is_unknown() -> None:
    text = LOOP.format(start=0, bound=12, step=1, operands=FORWARD, direction="LT").replace("tuple(%j, %x, %n)", "tuple(%j, %x, %j)")
    assert loops(parse_hlo(text))[0].trips is None


@pytest.mark.parametrize("optimized", [True, False])
def test_a_scan_runs_once_a_layer(train_steps: dict[tuple[bool, bool], Module], optimized: bool) -> None:
    assert [loop.trips for loop in loops(train_steps[True, optimized])] == [programs.LAYERS, programs.LAYERS]
    assert loops(train_steps[False, optimized]) == ()


def flops(module: Module) -> int:
    attribution = Attribution(module)
    return sum(matmul_flops(*part) * n.times for c, i, n in attribution.executed() for part in attribution.parts(c, i))


def test_products_counted_through_loops_and_fusions_are_those_of_the_model(train_steps: dict[tuple[bool, bool], Module]) -> None:
    unrolled = programs.train_step_flops()
    assert flops(train_steps[False, True]) == flops(train_steps[False, False]) == unrolled
    rematerialised = flops(train_steps[True, False])
    assert unrolled < rematerialised < unrolled * 4 / 3
    assert flops(train_steps[True, True]) == rematerialised


def test_convolutions_that_are_dots_count_real_products_only(einsum: Module) -> None:
    product = 2 * 8 * 2048 * 2048 * 128
    # older compilers write the scores twice into the softmax's fusion: once for the maximum, once for the exponential
    products = 2 if programs.NEW_LIBTPU else 3
    assert flops(einsum) == products * product
    counted = compiled(programs.einsum_export()).flops  # the compiler's own count holds the softmax too
    assert counted is not None and products * product < counted < products * product * 1.02


def test_transfers_are_paired_with_what_can_hide_them(einsum: Module) -> None:
    pairs = async_pairs(einsum)
    assert pairs and all(pair.start.name in pair.done.operands for pair in pairs)
    starts = [i for i in einsum.entry.instructions if i.opcode.endswith("-start")]
    assert {pair.start.name for pair in pairs} == {i.name for i in starts}
    order = [i.name for i in einsum.entry.instructions]
    for pair in pairs:
        assert list(pair.between) == order[order.index(pair.start.name) + 1 : order.index(pair.done.name)]
