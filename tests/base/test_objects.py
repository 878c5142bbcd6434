"""The store of artefacts tells one kind of error, whatever the disk does."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kgagent.errors import StorageError
from kgagent.objects import Objects, sha256_hex


def test_a_file_in_the_folders_place_is_told(tmp_path: Path) -> None:
    sha = sha256_hex(b"bytes")
    (tmp_path / sha[:2]).write_text("a file where a folder belongs")
    with pytest.raises(StorageError, match="can't store an artefact") as told:
        Objects(tmp_path).put(b"bytes")
    assert told.value.where == str(Objects(tmp_path).path(sha))


@pytest.mark.parametrize("cleaning", [NotADirectoryError, PermissionError, None])
def test_a_full_disk_is_told_though_cleaning_up_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cleaning: type[OSError] | None) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise OSError("can't") if cleaning is None else cleaning("can't")

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StorageError, match="No space left"):
        Objects(tmp_path).put(b"bytes")


def test_nothing_is_left_after_a_failed_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(StorageError):
            Objects(tmp_path).put(b"bytes")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    store = Objects(tmp_path)
    assert store.get(store.put(b"bytes")) == b"bytes"
