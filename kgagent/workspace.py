"""A workspace is a folder with `kgagent.toml`; everything kgagent knows about a project lives below it.

Why a marker of its own: graph.db is generated and may be absent, while raw/ and wiki/ are common names.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

from kgagent.errors import ConfigError, StorageError, UsageError, WorkspaceMissing

MARKER = "kgagent.toml"


@dataclass(frozen=True, slots=True)
class Workspace:
    """Paths of one workspace, so that no other module spells a file name twice."""

    root: Path

    @property
    def graph_db(self) -> Path:
        return self.root / "graph.db"

    @property
    def raw(self) -> Path:
        """Immutable inputs: objects, sources, runs."""
        return self.root / "raw"

    @property
    def objects(self) -> Path:
        return self.raw / "objects"

    @property
    def sources(self) -> Path:
        return self.raw / "sources"

    @property
    def runs(self) -> Path:
        return self.raw / "runs"

    @property
    def journal_db(self) -> Path:
        return self.raw / "journal.db"

    @property
    def wiki(self) -> Path:
        return self.root / "wiki"

    @property
    def concepts(self) -> Path:
        return self.wiki / "concepts"

    @property
    def lanes(self) -> Path:
        return self.root / "lanes"

    @property
    def scratch(self) -> Path:
        """Worktrees, logs and temporary files; safe to delete when nothing runs."""
        return self.root / ".kgagent"

    def config(self) -> dict[str, object]:
        """The parsed kgagent.toml; `ConfigError` names the line when it doesn't parse."""
        path = self.root / MARKER
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"kgagent.toml doesn't parse: {error}", where=str(path), hint="fix that line") from error
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"kgagent.toml can't be read: {error}", where=str(path), hint="save it as UTF-8 text") from error

    def current_lane(self) -> str | None:
        """The lane that "here" means in questions; None when nobody chose one."""
        lane = self.config().get("lane", "")
        if not isinstance(lane, str):
            raise ConfigError(f"`lane` in kgagent.toml should be a lane's name, not {lane!r}", where=str(self.root / MARKER), hint='write lane = "attention"')
        return lane or None


def find_workspace(start: Path | None = None, *, explicit: Path | None = None) -> Workspace:
    """The workspace named, or the nearest one upward; `WorkspaceMissing` says how to make one."""
    if explicit is not None:
        if (explicit / MARKER).is_file():
            return Workspace(explicit.resolve())
        raise WorkspaceMissing("no workspace there", where=str(explicit), hint=f"kgagent -w {explicit} init")
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / MARKER).is_file():
            return Workspace(folder)
    raise WorkspaceMissing("no workspace in this folder or above it", where=str(here), hint="kgagent init, or -w DIR")


def create_workspace(root: Path, *, lane: str | None = None) -> Workspace:
    """Make the folders and the marker; an existing workspace keeps its kgagent.toml byte for byte."""
    if root.exists() and not root.is_dir():
        raise UsageError("that is a file, not a folder", where=str(root))
    workspace = Workspace(root.resolve())
    try:
        for folder in (workspace.objects, workspace.sources, workspace.runs, workspace.concepts, workspace.lanes, workspace.scratch):
            folder.mkdir(parents=True, exist_ok=True)
        marker = workspace.root / MARKER
        if not marker.exists():
            text = '# kgagent workspace. `lane` is what "here" means in questions.\n' + (f'lane = "{lane}"\n' if lane else "")
            write_atomic(marker, text.encode())
    except OSError as error:
        raise StorageError(f"can't make a workspace: {error.strerror or error}", where=str(root), hint="choose a folder you can write to") from error
    return workspace


def write_atomic(path: Path, data: bytes) -> None:
    """Write beside, flush, rename: a reader sees the old bytes or the new, a crash never half of them."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
