"""The lane as an experiment's plan stored it, so that an edit in between changes nothing that was begun."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

from kgagent.errors import StorageError
from kgagent.lanes import Lane, read_lane
from kgagent.objects import Objects
from kgagent.workspace import Workspace

FILE_ROLE = "file:"


def stored_lane(workspace: Workspace, name: str, plan: dict[str, Any]) -> Lane:
    """Read from raw/objects; its `folder` is still the person's, for source lines and the immutable gate."""
    objects = Objects(workspace.objects)
    try:
        # not in the workspace: checking one that can't be written must work
        with tempfile.TemporaryDirectory(prefix="kgagent-lane-", ignore_cleanup_errors=True) as scratch:
            folder = Path(scratch).resolve() / name
            for role, sha in plan["artefacts"].items():
                if role.startswith(FILE_ROLE):
                    target = folder / _inside(role.removeprefix(FILE_ROLE), name)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(objects.get(sha))
            return dataclasses.replace(read_lane(folder), folder=Path(plan["lane_folder"]))
    except OSError as error:
        what = f"can't use the temporary folder: {error.strerror or error}"
        raise StorageError(what, where=tempfile.gettempdir(), hint="free disk space there, or set TMPDIR") from error


def _inside(file: str, lane: str) -> PurePosixPath:
    """Receipts may be somebody else's: a name that leads out of the lane's folder is not written."""
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts:
        raise StorageError(f"a receipt of lane {lane} names the file {file!r}, outside the lane", hint="don't trust that workspace")
    return path
