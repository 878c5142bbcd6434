"""How results reach people and programs: text or JSON on stdout, narration on stderr."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import click

from kgagent.errors import StorageError
from kgagent.graph import graph_is_lost
from kgagent.graph.records import plain
from kgagent.workspace import Workspace, find_workspace

T = TypeVar("T")
WIDEST = 110
WITHOUT_GRAPH = ("rebuild", "verify", "doctor", "init", "demo")


class State:
    """What the options before the command chose; the workspace is looked for only when a command needs one."""

    def __init__(self, explicit: Path | None) -> None:
        self.explicit = explicit

    @property
    def workspace(self) -> Workspace:
        """The workspace; a lost graph is told, except to the commands that do without it or bring it back."""
        found = find_workspace(explicit=self.explicit)
        context = click.get_current_context(silent=True)
        if graph_is_lost(found) and (context is None or context.info_name not in WITHOUT_GRAPH):
            raise StorageError(
                "graph.db is gone, while raw/ holds sources or runs", where=str(found.graph_db), hint="kgagent rebuild makes it again from raw/ and wiki/"
            )
        return found


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`, the same for every command: the whole record, nothing truncated."""
    return click.option("--json", "as_json", is_flag=True, help="Print the whole record as JSON.")(command)


def emit(value: T, as_json: bool, render: Callable[[T], str]) -> None:
    """One result to stdout, as JSON or as text."""
    if as_json:
        click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))
    else:
        text = render(value)
        if text:
            click.echo(text)


def narrate(text: str) -> None:
    """A line for the person watching; never data."""
    click.echo(text, err=True)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Left-aligned columns as wide as their widest cell; numbers are formatted by the caller."""
    cells = [[str(c) for c in row] for row in rows]
    widths = [max(len(h), *(len(r[i]) for r in cells)) if cells else len(h) for i, h in enumerate(header)]
    lines = ["  ".join(h.ljust(w) for h, w in zip(header, widths, strict=True)).rstrip()]
    lines.append("  ".join("-" * w for w in widths).rstrip())
    lines.extend("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells)
    return "\n".join(lines)


def counted(number: int, word: str) -> str:
    """`1 run`, `1,024 runs`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def text_width() -> int:
    """Columns to wrap prose to: the terminal's, within reason; a file gets the widest."""
    return max(40, min(WIDEST, shutil.get_terminal_size().columns)) if sys.stdout.isatty() else WIDEST


def short_path(path: str | None) -> str:
    """A path relative to here when that is shorter."""
    if not path:
        return ""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) else path


class Progress:
    """One line that rewrites itself on a terminal; off one, a line when the step changes.

    Every long call takes a callback `progress(step, done, total)`; `--json` runs get JSON lines instead.
    """

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.terminal = sys.stderr.isatty() and not as_json
        self.step = ""
        self.started = time.monotonic()
        self.drawn = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.terminal and self.step:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def __call__(self, step: str, done: int = 0, total: int = 0) -> None:
        now = time.monotonic()
        if self.as_json:
            if step != self.step or done == total:
                sys.stderr.write(json.dumps({"step": step, "done": done, "total": total, "seconds": round(now - self.started, 2)}) + "\n")
        elif self.terminal:
            if step != self.step or done == total or now - self.drawn > 0.05:
                count = f" {done:,}/{total:,}" if total else ""
                bar = "█" * int(24 * done / total) if total else ""
                line = f"{now - self.started:6.1f} s  {step}{count} {bar}"
                # a line longer than the terminal would leave its tail behind at every redraw
                sys.stderr.write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
                sys.stderr.flush()
                self.drawn = now
        elif step != self.step:
            sys.stderr.write(f"{now - self.started:6.1f} s  {step}\n")
        self.step = step
