"""One pass over the lines of HLO text: header, frame tables, computations, instructions.

Compilers print one instruction a line and are read fast; people wrap, indent and comment, which costs more and is read too.
"""

from __future__ import annotations

import re

from kgagent.errors import EvidenceError
from kgagent.evidence.frames import TABLES, FrameTable
from kgagent.evidence.hlo import Computation, Instruction, Module
from kgagent.evidence.scan import balanced

_HEAD = re.compile(r"\s*(ROOT )?%?([^\s=]+) = (\(.*?\)|[^\s(]\S*) ([a-zA-Z][\w\-]*)\(")
_WRAPPED_HEAD = re.compile(r"\s*(ROOT )?%?([^\s=]+) = (\(.*?\)|[^\s(]\S*)\s+([a-zA-Z][\w\-]*)\(", re.DOTALL)
_SHAPELESS_HEAD = re.compile(r"\s*(ROOT )?%?([^\s=]+) = ()([a-z][\w\-]*)\(")
_START = re.compile(r"\s*(?:ROOT )?%?[\w.\-]+ =\s")
_COMPUTATION = re.compile(r"\s*(ENTRY )?%?([^\s({]+)\s*(\(.*\) -> .*)?\{\s*$", re.DOTALL)
_CLOSE = re.compile(r"\s*\}(?:, execution_thread=\"[^\"]*\")?\s*$")
_MODULE = re.compile(r"\s*HloModule\s+([^\s,]*)")
_UNREAD_KEPT = 20
_WRAPPED_LINES = 64  # a header or head longer than this is no such thing


class Reader:
    """Knows whether it is in the header, a table or a computation; counts what it can't read."""

    def __init__(self, lines: list[str], where: str) -> None:
        self.text_bytes = sum(map(len, lines)) + len(lines) - 1
        self.lines = lines
        self.where = where
        self.frames = FrameTable()
        self.computations: dict[str, Computation] = {}
        self.entry: Computation | None = None
        self.unread: list[tuple[int, str]] = []
        self.unread_count = 0
        self.count = 0

    def module(self) -> Module:
        """Read it all; `EvidenceError` for what isn't HLO, is empty, or is cut off."""
        lines = self.lines
        start = next((n for n, line in enumerate(lines) if "HloModule" in line and _MODULE.match(line)), None)
        found = _MODULE.match(lines[start]) if start is not None else None
        if start is None or found is None:
            raise EvidenceError("this is not HLO text: no line starts with HloModule", where=self.where, hint="give a compiled.as_text() or *.txt dump")
        header, at, table = lines[start], start + 1, ""
        total = len(lines)
        while at < total and lines[at].strip() and not balanced(header):  # attributes with newlines in them
            header += "\n" + lines[at]
            at += 1
        while at < total:
            line = lines[at]
            if not line or line.isspace():
                table = ""
            elif line in TABLES:
                table = line
            elif not (table and self.frames.add(table, line)) and not line.lstrip().startswith("//"):
                at = self._opening(at)
            at += 1
        if self.entry is None:
            what = "the HLO text is cut: it has no ENTRY computation" if self.computations else "the module is empty"
            raise EvidenceError(what, where=self.where, hint="dump it again; the writer may have been killed")
        return Module(
            found.group(1), header.strip(), self.frames, self.computations, self.entry, self.count, self.unread_count, tuple(self.unread), self.text_bytes
        )  # fmt: skip

    def _not_read(self, at: int) -> None:
        self.unread_count += 1
        if len(self.unread) < _UNREAD_KEPT:
            self.unread.append((at + 1, self.lines[at]))

    def _opening(self, at: int) -> int:
        """A computation's header, perhaps wrapped, and what it holds; returns the last line read."""
        line = self.lines[at]
        opening, end = _COMPUTATION.match(line), at
        while opening is None and "(" in line and end + 1 < len(self.lines) and end - at < _WRAPPED_LINES:
            end += 1
            line += " " + self.lines[end].strip()
            opening = _COMPUTATION.match(line) if line.endswith("{") else None
        if opening is None:
            self._not_read(at)
            return at
        return self._computation(opening, end)

    def _computation(self, opening: re.Match[str], at: int) -> int:
        """Read to the closing brace; returns its line."""
        lines, head, total = self.lines, _HEAD.match, len(self.lines)
        first = at
        out: list[Instruction] = []
        append = out.append
        shared: dict[str, str] = {}
        share, make = shared.setdefault, tuple.__new__  # equal shapes are one string
        while True:
            at += 1
            if at >= total:
                raise EvidenceError(f"the HLO text is cut inside computation {opening.group(2)}", where=f"{self.where}:{total}", hint="dump it again")
            line = lines[at]
            found = head(line)
            if found is not None:
                root, name, shape, opcode = found.groups()
                append(make(Instruction, (name, share(opcode, opcode), share(shape, shape), line, found.end(), root is not None)))
            elif line and not line.isspace():
                if _CLOSE.match(line) and not (out and self._goes_on(out[-1], lines[at - 1])):
                    break
                at = self._odd_line(out, at)
        if not out:
            self._not_read(first)
            return at
        name = opening.group(2)
        while name in self.computations:  # a fingerprint print leaves names out
            name += "~"
        computation = Computation(name, opening.group(1) is not None, first + 1, tuple(out))
        self.computations[computation.name] = computation
        self.count += len(out)
        if computation.is_entry:
            self.entry = computation
        return at

    def _odd_line(self, out: list[Instruction], at: int) -> int:
        """A line that is no whole instruction: a wrapped one, the rest of the last, a comment; returns the last line read."""
        line = self.lines[at]
        if line.lstrip().startswith("//"):
            return at
        if _START.match(line):
            text, end = line, at
            while True:
                found = _SHAPELESS_HEAD.match(text) or _WRAPPED_HEAD.match(text)
                if found:
                    root, name, shape, opcode = found.groups()
                    out.append(Instruction(name, opcode, " ".join(shape.split()), text, found.end(), root is not None))
                    return end
                if end + 1 >= len(self.lines) or end - at >= _WRAPPED_LINES or not self.lines[end].strip():
                    self._not_read(at)
                    return at
                end += 1
                text += "\n" + self.lines[end]
        previous = self.lines[at - 1].rstrip()
        if out and (previous.endswith(",") or line.lstrip().startswith(",") or self._goes_on(out[-1], previous) or not balanced(out[-1].text)):
            out[-1] = out[-1]._replace(text=f"{out[-1].text}\n{line}")
        else:
            self._not_read(at)
        return at

    @staticmethod
    def _goes_on(last: Instruction, previous_line: str) -> bool:
        """Whether the instruction still waits for a closing brace; only those that don't end cleanly are scanned."""
        return ("\n" in last.text or previous_line.rstrip().endswith(("{", ",", "[", "("))) and not balanced(last.text)
