"""The lane as an experiment's plan stored it, so that an edit in between changes nothing that was begun."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from kgagent.executor.workers import scratch_folder
from kgagent.lanes import Lane, read_lane
from kgagent.objects import Objects
from kgagent.workspace import Workspace

FILE_ROLE = "file:"


def stored_lane(workspace: Workspace, name: str, plan: dict[str, Any]) -> Lane:
    """Read from raw/objects; its `folder` is still the person's, for source lines and the immutable gate."""
    objects = Objects(workspace.objects)
    with scratch_folder(workspace) as scratch:
        folder = scratch / name
        for role, sha in plan["artefacts"].items():
            if role.startswith(FILE_ROLE):
                target = folder / role.removeprefix(FILE_ROLE)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(objects.get(sha))
        return dataclasses.replace(read_lane(folder), folder=Path(plan["lane_folder"]))
