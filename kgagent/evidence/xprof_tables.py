"""xprof's own tables (overview, op statistics, roofline, memory …), asked for in a process of their own.

Why apart: the converters print to stderr from C++ and leave cache files beside the trace, which is somebody's raw evidence.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

from kgagent.errors import EvidenceError, StorageError, Unavailable, UsageError
from kgagent.evidence.xplane import trace_files
from kgagent.process import run_limited

TOOLS = (
    "overview_page", "input_pipeline_analyzer", "framework_op_stats", "memory_profile", "op_profile", "hlo_stats", "roofline_model", "memory_viewer",
    "kernel_stats", "pod_viewer", "megascale_stats", "utilization_viewer", "perf_counters", "inference_profile", "smart_suggestion",
)  # fmt: skip
_WORKER = """
import json, sys
from xprof.convert import raw_to_tool_data
data, _ = raw_to_tool_data.xspace_to_tool_data(sys.argv[3:], sys.argv[1], {})
open(sys.argv[2], "wb").write(data if isinstance(data, bytes) else (data or "").encode())
"""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a tool: column ids with their labels, rows as the tool gives them; `properties` are its headline figures."""

    tool: str
    columns: tuple[str, ...]
    labels: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    properties: tuple[tuple[str, str], ...]

    def column(self, name: str) -> tuple[Any, ...]:
        at = self.columns.index(name)
        return tuple(row[at] for row in self.rows)


def xprof_tables(path: Path, tool: str, *, wall_s: float = 120) -> tuple[Table, ...]:
    """A tool's tables for a trace (file or folder); tools that answer with a tree are given by `xprof_json`."""
    found = xprof_json(path, tool, wall_s=wall_s)
    tables = found if isinstance(found, list) else [found]
    return tuple(_table(tool, table) for table in tables if isinstance(table, dict) and "cols" in table)


def xprof_json(path: Path, tool: str, *, wall_s: float = 120) -> Any:
    """A tool's whole answer as data."""
    if tool not in TOOLS:
        raise UsageError(f"xprof has no tool {tool!r} here", hint=f"one of {', '.join(TOOLS)}")
    if util.find_spec("xprof") is None:
        raise Unavailable("xprof isn't installed", hint='pip install "kgagent[jax]"')
    files = trace_files(path)
    with tempfile.TemporaryDirectory(prefix="kgagent-xprof-") as name:
        folder = Path(name)
        answer = folder / "answer"
        try:
            copies = [shutil.copyfile(file, folder / file.name) for file in files]
        except OSError as error:
            raise StorageError(f"can't copy the trace: {error.strerror or error}", where=name, hint="free some space there") from error
        finished = run_limited([sys.executable, "-c", _WORKER, tool, str(answer), *map(str, copies)], cwd=folder, wall_s=wall_s, output_kb=4096)
        if finished.killed_by:
            raise EvidenceError(f"xprof's {tool} hit the {finished.killed_by} limit", where=str(path), hint="give it more, or a shorter trace")
        try:
            text = answer.read_text(encoding="utf-8")
            return json.loads(text) if text else None
        except (FileNotFoundError, UnicodeDecodeError, json.JSONDecodeError) as error:
            lines = [line for line in finished.stderr.splitlines() if line.strip()]
            raise EvidenceError(f"xprof's {tool} gave no answer: {lines[-1][:300] if lines else 'no message'}", where=str(path)) from error


def _table(tool: str, table: dict[str, Any]) -> Table:
    rows = tuple(tuple((cell or {}).get("v") for cell in row.get("c", ())) for row in table.get("rows", ()))
    columns = tuple(str(column.get("id", "")) for column in table["cols"])
    labels = tuple(str(column.get("label", "")) for column in table["cols"])
    return Table(tool, columns, labels, rows, tuple((str(k), str(v)) for k, v in (table.get("p") or {}).items()))
