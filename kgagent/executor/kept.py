"""Hypotheses as files in raw/, so that one nobody has run yet outlives graph.db."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kgagent.errors import StorageError
from kgagent.graph import plain
from kgagent.objects import canonical_json
from kgagent.workspace import Workspace, write_atomic

FOLDER = "hypotheses"


def keep_hypothesis(workspace: Workspace, id_: str, subject: Mapping[str, object]) -> None:
    """Write lane, scope, configuration and hypothesis under the hypothesis' id."""
    path = workspace.raw / FOLDER / f"{id_.removeprefix('hyp:').replace('/', '-')}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, canonical_json(plain(dict(subject))).encode())
    except OSError as error:
        raise StorageError(f"can't keep the hypothesis: {error.strerror or error}", where=str(path), hint="free disk space, then propose it again") from error


def kept_hypotheses(workspace: Workspace) -> list[dict[str, Any]]:
    """All that were kept; `StorageError` names a file that can't be read."""
    found = []
    for path in sorted((workspace.raw / FOLDER).glob("*.json")):
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise StorageError("a kept hypothesis can't be read", where=str(path), hint="restore it from a copy, or delete it") from error
    return found
