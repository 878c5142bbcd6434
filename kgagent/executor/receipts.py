"""Receipts: canonical JSON, each holding the SHA-256 of the one before, one file a step in raw/runs.

A chain holds all that is needed to file its experiment again and to check every sum offline.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgagent.errors import StorageError
from kgagent.objects import canonical_json, sha256_hex
from kgagent.workspace import Workspace, write_atomic

SUMS = "SHA256SUMS"


@dataclass(frozen=True, slots=True)
class Receipt:
    """One link; `body` is the exact text that `sha` is of."""

    sha: str
    seq: int
    prev: str
    step: str
    body: str

    @property
    def file_name(self) -> str:
        return f"{self.seq:02d}-{self.step}.json"

    @property
    def told(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed


def run_folder(workspace: Workspace, experiment: str) -> Path:
    """raw/runs/attention-0001 for exp:attention/0001."""
    return workspace.runs / experiment.removeprefix("exp:").replace("/", "-")


def chain(experiment: str, steps: Sequence[tuple[str, dict[str, Any]]]) -> tuple[Receipt, ...]:
    """Link bodies in order; the same steps give the same bytes."""
    receipts: list[Receipt] = []
    for seq, (step, told) in enumerate(steps):
        prev = receipts[-1].sha if receipts else ""
        body = canonical_json({**told, "experiment": experiment, "seq": seq, "prev": prev, "step": step})
        receipts.append(Receipt(sha256_hex(body), seq, prev, step, body))
    return tuple(receipts)


def write_chain(workspace: Workspace, experiment: str, receipts: Sequence[Receipt]) -> Path:
    """One file a receipt, then their sums (as sha256sum prints them) last, so that a cut-off chain is seen as one."""
    folder = run_folder(workspace, experiment)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for receipt in receipts:
            write_atomic(folder / receipt.file_name, receipt.body.encode())
        write_atomic(folder / SUMS, "".join(f"{receipt.sha}  {receipt.file_name}\n" for receipt in receipts).encode())
    except OSError as error:
        raise StorageError(f"can't write receipts: {error.strerror or error}", where=str(folder), hint="free disk space, then kgagent resume") from error
    return folder


def read_chain(folder: Path) -> tuple[Receipt, ...]:
    """The receipts of a run, each checked against its sum and its place in the chain; `StorageError` names the file that doesn't fit."""
    receipts: list[Receipt] = []
    for line in _text(folder / SUMS).splitlines():
        sha, _, name = line.partition("  ")
        path = folder / Path(name).name
        body = _text(path)
        if sha256_hex(body) != sha:
            raise _changed(folder, path, sha256_hex(body))
        try:
            told = json.loads(body)
            receipt = Receipt(sha, int(told["seq"]), str(told["prev"]), str(told["step"]), body)
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError("a receipt isn't readable JSON", where=str(path), hint="restore it from a copy") from error
        if receipt.seq != len(receipts) or receipt.prev != (receipts[-1].sha if receipts else "") or receipt.file_name != path.name:
            raise StorageError("the receipt does not follow the one before it", where=str(path), hint="restore both from a copy")
        receipts.append(receipt)
    if not receipts:
        raise StorageError("a run without receipts", where=str(folder / SUMS))
    return tuple(receipts)


def _changed(folder: Path, path: Path, found: str) -> StorageError:
    """Which of the two is damaged: a receipt that the next one still names by hash is whole, so then it is the list of sums."""
    named = {str(told.get("prev")) for told in map(_read_loosely, sorted(folder.glob("*.json"))) if isinstance(told, dict)}
    if found in named:
        return StorageError(f"the sum of {path.name} changed since it was written", where=str(folder / SUMS), hint="restore it from a copy")
    return StorageError(f"the receipt changed since it was written: it isn't what {SUMS} says", where=str(path), hint="restore it from a copy")


def _read_loosely(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        what = "the list of a run's receipts is missing" if path.name == SUMS else f"a receipt is missing that {SUMS} names"
        raise StorageError(what, where=str(path), hint="restore it from a copy") from error
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"a receipt can't be read: {error}", where=str(path)) from error
