"""Source frames of HLO instructions, whole chains, so that the user's line and the library's line can both be found.

The tables are 1-based and a frame's parent is `parent_frame_id - 1`: read literally, chains end after one or two frames.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_ROW = re.compile(r"(\d+) (?:\"((?:[^\"\\]|\\.)*)\"|\{([^}]*)\})\s*$")
_FIELD = re.compile(r"(\w+)=(-?\d+)")
_HARNESS = re.compile(r"[/\\]kgagent[/\\](?:compiler|executor|lanes)[/\\][^/\\]+\.py$|^<frozen runpy>$")
TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")


@dataclass(frozen=True, slots=True)
class Frame:
    """One source position; 0 where the dump doesn't say."""

    file: str
    line: int
    function: str = ""
    end_line: int = 0
    column: int = 0

    @property
    def place(self) -> str:
        """`path:line`."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class FrameTable:
    """The four tables of a module's header; chains are made when asked for and kept."""

    files: dict[int, str] = field(default_factory=dict)
    functions: dict[int, str] = field(default_factory=dict)
    locations: dict[int, dict[str, int]] = field(default_factory=dict)
    frames: dict[int, tuple[int, int]] = field(default_factory=dict)  # id -> (location, parent)
    _chains: dict[int, tuple[Frame, ...]] = field(default_factory=dict, repr=False, compare=False)

    def add(self, table: str, line: str) -> bool:
        """Read one row into its table; False when it isn't a row."""
        row = _ROW.match(line)
        if row is None:
            return False
        number, text, fields = int(row.group(1)), row.group(2), row.group(3)
        if text is not None:
            if table not in ("FileNames", "FunctionNames"):
                return False
            (self.files if table == "FileNames" else self.functions)[number] = text.replace('\\"', '"').replace("\\", "\\")
            return True
        values = {name: int(value) for name, value in _FIELD.findall(fields)}
        if table == "FileLocations":
            self.locations[number] = values
        elif table == "StackFrames":
            self.frames[number] = (values.get("file_location_id", 0), values.get("parent_frame_id", 0) - 1)
        else:
            return False
        return True

    def chain(self, frame_id: int) -> tuple[Frame, ...]:
        """Frames from the innermost outwards; () for an id the tables don't have."""
        if frame_id in self._chains:
            return self._chains[frame_id]
        out: list[Frame] = []
        seen: set[int] = set()
        at = frame_id
        while at in self.frames and at not in seen:  # a damaged table may loop
            seen.add(at)
            location, parent = self.frames[at]
            fields = self.locations.get(location, {})
            file = self.files.get(fields.get("file_name_id", 0), "")
            if file and not _HARNESS.search(file):  # our own tracer and worker call the program; their lines are nobody's code
                function = self.functions.get(fields.get("function_name_id", 0), "")
                out.append(Frame(file, fields.get("line", 0), function, fields.get("end_line", 0), fields.get("column", 0)))
            at = parent
        self._chains[frame_id] = tuple(out)
        return self._chains[frame_id]
