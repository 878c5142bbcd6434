"""HLO text of any dialect as frozen records: modules, computations, instructions with operands, attributes and frames.

Only each instruction's head (name, shape, opcode) is read at once; operands and attributes are read from the kept line when
somebody asks, which is what makes 20 MB modules a matter of a second.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from kgagent.errors import EvidenceError
from kgagent.evidence.frames import Frame, FrameTable
from kgagent.evidence.scan import balanced, close_paren, quoted, split_attributes, split_top
from kgagent.evidence.shapes import data_bytes, leaves

_OPERAND = re.compile(r"%([^\s,()]+)")
_FRAME_ID = re.compile(r"stack_frame_id=(\d+)")
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_SOURCE = re.compile(r'source_file="((?:[^"\\]|\\.)*)"(?:\s+source_line=(\d+))?')
_COLUMN = re.compile(r"source_column=(\d+)")
_CALLED = re.compile(r"\b(calls|to_apply|condition|body|true_computation|false_computation|select|scatter|comparator|called_computation)=%?([^\s,{}]+)")
_CALLED_LIST = re.compile(r"\b(branch_computations|called_computations|calls)=\{([^}]*)\}")


class Instruction(NamedTuple):
    """One HLO instruction; `text` is its whole line, from which the rest is read when asked for.

    A named tuple: making 200,000 frozen dataclasses would take half of the reading time.
    """

    name: str
    opcode: str
    shape: str  # as printed, layout included
    text: str
    args_at: int  # offset in text just behind "opcode("
    is_root: bool

    @property
    def args_end(self) -> int:
        """Offset of the parenthesis that closes the operands."""
        return close_paren(self.text, self.args_at)

    @property
    def args(self) -> str:
        """What stands between the parentheses: operands, a parameter's number, a constant's value."""
        return self.text[self.args_at : self.args_end]

    @property
    def operands(self) -> tuple[str, ...]:
        """Operand names in order; () for parameters, constants and the like."""
        if self.opcode in ("parameter", "constant", "iota"):
            return ()
        args = self.args
        if "%" in args:
            return tuple(_OPERAND.findall(args))
        words = [part.replace("*/", "*/ ").split()[-1:] for part in split_top(args)]  # the dialect without % may print shapes before the names
        return tuple(word[0] for word in words if word and "[" not in word[0] and not word[0].endswith(("]", "}", ")", "*/")))

    @property
    def tail(self) -> str:
        """The attributes as printed, behind the operands."""
        return self.text[self.args_end + 1 :]

    @property
    def attributes(self) -> dict[str, str]:
        """Attribute texts by name, in order."""
        return split_attributes(self.tail)

    def attribute(self, name: str) -> str | None:
        """One attribute's text; cheaper than reading all when it is absent."""
        return self.attributes.get(name) if f"{name}=" in self.text else None

    @property
    def metadata(self) -> str:
        """The metadata braces as printed, without reading the other attributes; '' where there are none."""
        start = self.text.find(", metadata={", self.args_at)
        if start < 0:
            return ""
        start += len(", metadata={")
        end = self.text.find("}", start)
        while end >= 0 and not balanced(self.text[start:end]):  # op_name may hold braces
            end = self.text.find("}", end + 1)
        return self.text[start:end] if end >= 0 else self.text[start:]

    @property
    def op_name(self) -> str:
        """The JAX name stack, e.g. `jit(f)/attention/dot_general`."""
        found = _OP_NAME.search(self.metadata)
        return quoted(found.group(1)) if found else ""

    @property
    def frame_id(self) -> int:
        """The stack frame's id; 0 for none."""
        found = _FRAME_ID.search(self.metadata)
        return int(found.group(1)) if found else 0

    @property
    def called(self) -> tuple[tuple[str, str], ...]:
        """(role, computation) of what it calls: calls, to_apply, condition, body, branch_computations …"""
        if "=%" not in self.text and self.opcode not in CALLERS:
            return ()
        tail = self.tail
        config = tail.find(", backend_config=")
        tail = tail if config < 0 else tail[:config]
        lists = [(role, name.strip().lstrip("%")) for role, names in _CALLED_LIST.findall(tail) for name in names.split(",") if name.strip()]
        return tuple((role, name) for role, name in _CALLED.findall(tail) if name != "{") + tuple(lists)

    @property
    def target(self) -> str:
        """A custom call's target; '' otherwise."""
        return (self.attribute("custom_call_target") or "").strip('"') if self.opcode.startswith("custom-call") else ""

    @property
    def output_bytes(self) -> int:
        """Bytes of the result's values, tuples summed."""
        return data_bytes(self.shape)

    @property
    def spaces(self) -> frozenset[int]:
        """Memory spaces of the result: 0 HBM, 1 VMEM."""
        return frozenset(leaf.space for leaf in leaves(self.shape))


CALLERS = frozenset(
    ("fusion", "call", "while", "conditional", "reduce", "reduce-window", "scatter", "sort", "map", "select-and-scatter", "all-reduce",
     "all-reduce-start", "reduce-scatter", "async-start", "async-update", "async-done", "custom-call", "all-reduce-done")
)  # fmt: skip


@dataclass(frozen=True)
class Computation:
    """A named list of instructions in printed order (execution order when the module is scheduled)."""

    name: str
    is_entry: bool
    line: int  # 1-based line of its header
    instructions: tuple[Instruction, ...] = field(repr=False)

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        return {instruction.name: instruction for instruction in self.instructions}

    @cached_property
    def root(self) -> Instruction:
        """The ROOT instruction; printers that mark none put it last."""
        return next((i for i in reversed(self.instructions) if i.is_root), self.instructions[-1])

    @cached_property
    def parameters(self) -> dict[int, Instruction]:
        return {int(i.args): i for i in self.instructions if i.opcode == "parameter" and i.args.strip().isdigit()}


@dataclass(frozen=True)
class Module:
    """A parsed module. `unread` counts lines no rule understood; the first of them are kept to be shown."""

    name: str
    header: str
    frames: FrameTable = field(repr=False)
    computations: dict[str, Computation] = field(repr=False)
    entry: Computation
    instruction_count: int
    unread: int
    unread_lines: tuple[tuple[int, str], ...]
    text_bytes: int

    @property
    def is_scheduled(self) -> bool:
        return "is_scheduled=true" in self.header

    def instructions(self) -> Iterator[tuple[Computation, Instruction]]:
        """Every instruction with the computation it stands in."""
        for computation in self.computations.values():
            for instruction in computation.instructions:
                yield computation, instruction

    def own_frames(self, instruction: Instruction) -> tuple[Frame, ...]:
        """The frame chain in the instruction's own metadata, innermost first."""
        metadata = instruction.metadata
        if not metadata:
            return ()
        found = _FRAME_ID.search(metadata)
        if found:
            chain = self.frames.chain(int(found.group(1)))
            if chain:
                return chain
        source = _SOURCE.search(metadata)
        if source is None:
            return ()
        column = _COLUMN.search(metadata)
        return (Frame(quoted(source.group(1)), int(source.group(2) or 0), column=int(column.group(1)) if column else 0),)


def read_hlo(path: Path) -> Module:
    """Parse a file; `EvidenceError` says what is wrong with it."""
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            lines = file.read().split("\n")  # the whole text is gone when parsing starts
        return _parse(lines, str(path))
    except UnicodeDecodeError as error:
        raise _not_text(str(path)) from error
    except OSError as error:
        raise EvidenceError(f"HLO text can't be read: {error.strerror or error}", where=str(path)) from error


def parse_hlo(text: str | bytes, *, where: str = "") -> Module:
    """Parse HLO text; what isn't HLO, or is cut off, is an `EvidenceError` and never half a module."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _not_text(where) from error
    return _parse(text.split("\n"), where)


def _not_text(where: str) -> EvidenceError:
    return EvidenceError("this is not HLO text (it isn't UTF-8)", where=where, hint="give the *.txt dump, not the *.pb")


def _parse(lines: list[str], where: str) -> Module:
    from kgagent.evidence.hlo_reader import Reader  # it makes these records

    collecting = gc.isenabled()
    gc.disable()  # only acyclic records are made below; collections would take a third of the time
    try:
        return Reader(lines, where).module()
    finally:
        if collecting:
            gc.enable()
