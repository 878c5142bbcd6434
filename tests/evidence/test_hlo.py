# ruff: noqa: E501  the texts are the compiler's own lines
"""The HLO reader on real text of every dialect, and on text that is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgagent.errors import EvidenceError
from kgagent.evidence.calls import async_pairs, counts
from kgagent.evidence.hlo import Instruction, Module, parse_hlo, read_hlo
from kgagent.evidence.shapes import data_bytes, leaves, without_layout
from tests.evidence import programs

INLINE = """HloModule jit_f, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %r = f32[] add(f32[] %a, f32[] %b)
}

%yes (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %n = f32[8]{0} negate(f32[8]{0} %p), metadata={op_type="neg" op_name="jit(f)/cond/neg" source_file="/m/model.py" source_line=12 source_column=4}
}

%no (q: f32[8]) -> f32[8] {
  ROOT %q = f32[8]{0} parameter(0)
}

ENTRY %main (x: f32[8], c: s32[]) -> f32[8] {
  %x = f32[8]{0:T(256)} parameter(0)
  %c = s32[] parameter(1)
  %k = f32[2,2]{1,0} constant({ { 1, 2 }, { 3, 4 } })
  %big = (f32[8]{0:T(8,128)S(1)}, f32[8]{0}, u32[]{:S(2)}, f32[8]{0}, f32[8]{0}, /*index=5*/f32[8]{0}) custom-call(%x, %x), custom_call_target="Foo", backend_config="a,b={}\\"q\\""
  %g = f32[8]{0} all-gather-start(%x), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}, use_global_device_ids=true
  %h = f32[8]{0} all-gather-done(%g)
  %s = f32[] reduce(%h, %c), dimensions={0}, to_apply=%add
  ROOT %o = f32[8]{0} conditional(%c, %x, %h), branch_computations={%yes, %no}
}
"""


WRAPPED = """
  // A module as people write it in tests: indented, wrapped, without layouts, names without %.
  HloModule by_hand

    add {
      lhs = u32[] parameter(0)
      rhs = u32[] parameter(1)
      ROOT add = u32[] add(u32[] lhs, u32[] rhs)
    }

    async_wrapped (async_param.1: u32[8],
                   unused: f32[8,4,1]) -> u32[4] {
       async_param.1 = u32[8]{0} parameter(0)
       // a comment
       unused = f32[8,4,1]{2,1,0} parameter(1)
       ROOT reduce-scatter.1 = u32[4]{0} reduce-scatter(u32[8]{0} async_param.1),
         replica_groups={}, dimensions={0}, to_apply=add
    }, execution_thread="parallel_thread"

    ENTRY main (data: u32[8], f: f32[8,4,1]) -> u32[4] {
      data = u32[8]{0} parameter(0)
      f = f32[8,4,1]{2,1,0} parameter(1)
      c = c64[] constant((7.4505806e-09, 0)), metadata={op_name="jit(f)/cp[fn=<function F at 0x1> tree=PyTreeDef({'a': *})]" source_file="/v/fft.py" source_line=44}
      start = ((u32[8]{0}),
          (f32[8,4,1], u32[]{:S(2)}), u32[4]{0}, /*index=3*/u32[]) async-start(u32[8]{0} data, f),
        calls=async_wrapped, async_execution_thread="parallel_thread",
        backend_config={"collective_backend_config": {"is_sync":false}}
      update = ((u32[8]{0}), u32[4]{0}) async-update(start),
        calls=async_wrapped
      %shapeless = add(data, data)
      ROOT done = u32[4]{0} async-done(((u32[8]{0}), u32[4]{0}) update),
        calls=async_wrapped
    }
"""


def by_name(module: Module, name: str) -> Instruction:
    return next(i for _, i in module.instructions() if i.name == name)


def test_reads_inline_metadata_conditionals_tuples_and_literals() -> None:
    module = parse_hlo(INLINE)
    assert (module.name, module.instruction_count, module.unread) == ("jit_f", 14, 0)
    assert [f.place for f in module.own_frames(by_name(module, "n"))] == ["/m/model.py:12"]
    assert by_name(module, "o").called == (("branch_computations", "yes"), ("branch_computations", "no"))
    assert by_name(module, "s").called == (("to_apply", "add"),)
    assert by_name(module, "r").operands == ("a", "b")
    assert by_name(module, "k").args == "{ { 1, 2 }, { 3, 4 } }" and by_name(module, "k").operands == ()
    big = by_name(module, "big")
    assert big.opcode == "custom-call" and big.target == "Foo" and len(leaves(big.shape)) == 6
    assert big.attributes == {"custom_call_target": '"Foo"', "backend_config": '"a,b={}\\"q\\""'}
    assert by_name(module, "g").attributes["replica_groups"] == "[2,4]<=[8]"


def test_reads_what_people_wrote_by_hand() -> None:
    module = parse_hlo(WRAPPED)
    assert (module.name, module.instruction_count, module.unread) == ("by_hand", 13, 0), module.unread_lines
    assert set(module.computations) == {"add", "async_wrapped", "main"}
    start, done = by_name(module, "start"), by_name(module, "done")
    assert start.operands == ("data", "f") and start.called == (("calls", "async_wrapped"),)
    assert len(leaves(start.shape)) == 5
    assert done.operands == ("update",) and done.is_root
    assert by_name(module, "reduce-scatter.1").called == (("to_apply", "add"),)
    assert by_name(module, "shapeless").operands == ("data", "data")
    assert [f.place for f in module.own_frames(by_name(module, "c"))] == ["/v/fft.py:44"]
    (pair,) = async_pairs(module)
    assert (pair.start.name, pair.done.name, pair.between) == ("start", "done", ("update", "shapeless"))
    assert counts(module)["async_wrapped"].times == 1


@pytest.mark.parametrize(
    ("text", "array_bytes", "plain", "space"),
    [
        ("bf16[8,2048]{1,0:T(8,128)(2,1)S(1)}", 32768, "bf16[8,2048]", 1),
        ("f32[]{:T(128)}", 4, "f32[]", 0),
        ("s4[3]{0}", 2, "s4[3]", 0),
        ("f32[<=8,2]{1,0}", 64, "f32[8,2]", 0),
        ("token[]", 0, "token", 0),
        ("(f32[2]{0}, /*index=1*/pred[4]{0:S(2)})", 12, "(f32[2], pred[4])", 0),
        ("((f32[2]{0}), f32[2]{0}, u32[])", 20, "(f32[2], f32[2], u32[])", 0),
    ],
)
def test_shapes(text: str, array_bytes: int, plain: str, space: int) -> None:
    assert data_bytes(text) == array_bytes
    assert without_layout(text) == plain
    assert leaves(text)[0].space == space


def test_tiles_pad_the_minor_dimensions() -> None:
    (shape,) = leaves("f32[3,100]{1,0:T(8,128)}")
    assert (shape.data_bytes, shape.padded_bytes) == (1200, 8 * 128 * 4)
    (turned,) = leaves("f32[3,100]{0,1:T(8,128)}")
    assert turned.padded_bytes == 128 * 104 * 4


def test_the_public_fixture(shared: Path) -> None:
    (path,) = (shared / "evidence/v6e_matmul/hlo_dump").glob("*.txt")
    module = read_hlo(path)
    assert (module.instruction_count, module.unread, module.is_scheduled) == (3, 0, True)
    root = module.entry.root
    assert root.target == "tpu_custom_call" and root.operands == ("x.1", "y.1")
    frames = module.own_frames(root)
    assert [(f.line, f.function) for f in frames] == [(48, "matmul_optimized"), (67, "main.<locals>.<lambda>"), (69, "main"), (80, "<module>")]
    assert (frames[0].end_line, frames[0].column) == (56, 9)


def test_every_line_of_real_modules_is_understood(train_steps: dict[tuple[bool, bool], Module], einsum: Module, splash: Module) -> None:
    for module in (*train_steps.values(), einsum, splash):
        assert module.unread == 0, module.unread_lines
        for computation, instruction in module.instructions():
            assert all(name in computation.by_name for name in instruction.operands), instruction.text
            assert all(name in module.computations for _, name in instruction.called), instruction.text
            if instruction.opcode == "parameter":
                assert instruction is computation.parameters[int(instruction.args)]


def test_an_instruction_with_newlines_in_its_attributes_stays_whole(splash: Module) -> None:
    (launch,) = (i for _, i in splash.instructions() if i.target == "tpu_custom_call")
    assert "\n" in launch.text
    assert list(launch.attributes) == ["custom_call_target", "operand_layout_constraints", "frontend_attributes", "metadata", "backend_config"]
    assert launch.op_name.endswith("/pallas_call")
    places = [f.place for f in splash.own_frames(launch)]
    assert "splash_attention_kernel.py" in places[0] and any("programs.py" in place for place in places)
    assert not any("/kgagent/compiler/" in place for place in places)


PRINTED = [
    {}, {"print_percent": True}, {"print_percent": False}, {"print_operand_shape": True}, {"print_operand_shape": True, "print_percent": False},
    {"include_layout_in_shapes": False}, {"print_metadata": False}, {"print_backend_config": False}, {"print_program_shape": False},
    {"print_extra_attributes": False}, {"print_control_dependencies": False}, {"print_large_constants": True}, {"indent_amount": 3}, {"print_ids": False},
]  # fmt: skip


@pytest.mark.parametrize("options", PRINTED, ids=str)
@pytest.mark.parametrize("optimized", [True, False])
def test_every_way_the_compiler_prints_a_module(options: dict[str, object], optimized: bool) -> None:
    """jaxlib holds the module as a structure: its instructions are the oracle for every dialect it can print."""
    hlo = pytest.importorskip("jaxlib._hlo")
    module = hlo.hlo_module_from_text(programs.train_step_hlo(True, optimized))
    chosen = hlo.HloPrintOptions()
    for name, value in options.items():
        setattr(chosen, name, value)
    read = parse_hlo(module.to_string(chosen))
    assert read.unread == 0, read.unread_lines
    expected = {c.name: [(i.name, [o.name for o in i.operands()]) for i in c.instructions()] for c in module.computations()}
    found = {name: [(i.name, list(i.operands)) for i in c.instructions] for name, c in read.computations.items()}
    if options.get("print_ids") is False:
        assert sorted(map(len, expected.values())) == sorted(map(len, found.values()))
    else:
        assert {name: sorted(map(str, rows)) for name, rows in found.items()} == {name: sorted(map(str, rows)) for name, rows in expected.items()}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no line starts with HloModule"),
        ("\x00\x01PK", "no line starts with HloModule"),
        (b"\xff\xfe\x00", "isn't UTF-8"),
        ("HloModule m\n\n", "empty"),
        (INLINE[: INLINE.index("ENTRY")], "no ENTRY"),
        (INLINE[: INLINE.index("%h = ")], "cut inside computation main"),
        (INLINE[: INLINE.index("ROOT %r")], "cut inside computation add"),
    ],
)
def test_damaged_text_is_refused(text: str | bytes, says: str) -> None:
    with pytest.raises(EvidenceError, match=says) as caught:
        parse_hlo(text, where="dump.txt")
    assert caught.value.hint


def test_any_cut_is_refused_or_whole() -> None:
    whole = parse_hlo(INLINE).instruction_count
    for end in range(0, len(INLINE), 7):
        try:
            assert parse_hlo(INLINE[:end]).instruction_count == whole
        except EvidenceError:
            continue


def test_what_is_not_understood_is_counted_and_kept() -> None:
    module = parse_hlo(INLINE.replace("  %c = s32[] parameter(1)\n", "  %c = s32[] parameter(1)\n  ??? nonsense\n"))
    assert module.unread == 1
    assert module.unread_lines == ((21, "  ??? nonsense"),)
    assert module.instruction_count == 14


def test_frames_of_a_damaged_table_end() -> None:
    table = '\nFileNames\n1 "/a b/x \\"y\\".py"\n\nFunctionNames\n1 "f"\n\nFileLocations\n1 {file_name_id=1 function_name_id=1 line=3 end_line=4 column=1 end_column=2}\n\n'
    frames = "StackFrames\n1 {file_location_id=1 parent_frame_id=3}\n2 {file_location_id=1 parent_frame_id=2}\n\n"
    module = parse_hlo(INLINE.replace("\n\n%add", f"\n{table}{frames}\n%add", 1))
    assert module.unread == 0
    assert [f.file for f in module.frames.chain(2)] == ['/a b/x "y".py'] * 2
    assert module.frames.chain(9) == ()
