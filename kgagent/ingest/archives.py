"""Unpacking wheels, sdists and git archives: only source and text, no links, nothing outside the folder, no bombs."""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO

from kgagent.errors import IngestError
from kgagent.ingest.walk import MAX_BYTES

KEPT_SUFFIXES = (".py", ".pyi", ".md", ".rst", ".txt", ".toml", ".yaml", ".yml", ".json", ".csv", ".sh", ".cfg", ".html", ".htm", ".pdf")
MAX_TOTAL_BYTES = 500_000_000  # the largest JAX repository seen holds 60 MB of text
MAX_SECONDS = 2**32  # times beyond the year 2106 are damage, and some file systems refuse them
ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tar.xz")


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack into a new folder, whole or not at all; returns the folder."""
    temporary = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        total = 0
        for name, size, seconds, stream in _members(archive):
            path = _inside(name)
            if path is None or not name.endswith(KEPT_SUFFIXES) or size > MAX_BYTES * 4:
                continue
            total += size
            if total > MAX_TOTAL_BYTES:
                raise IngestError(f"it unpacks to more than {MAX_TOTAL_BYTES // 10**6} MB of text", where=str(archive))
            target = temporary / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with stream, open(target, "wb") as out:
                out.write(stream.read(size))
            stamp = seconds if 0 <= seconds < MAX_SECONDS else 0
            os.utime(target, (stamp, stamp))
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError) as error:
        raise IngestError(f"the archive can't be unpacked: {error}", where=str(archive), hint="download it again") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _members(archive: Path) -> Iterator[tuple[str, int, float, IO[bytes]]]:
    """(name, bytes, time in seconds, content) of regular files only: a link could lead anywhere."""
    if archive.name.endswith((".whl", ".zip")):
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                if not info.is_dir() and (info.external_attr >> 16) & 0o170000 in (0, 0o100000):
                    yield info.filename, info.file_size, _zip_time(info), opened.open(info)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile():
                stream = tar.extractfile(member)
                if stream is not None:
                    yield member.name, member.size, float(member.mtime), stream


def _zip_time(info: zipfile.ZipInfo) -> float:
    """Zip times have no zone: read as UTC everywhere alike. An impossible one, which the format allows, is no time."""
    try:
        return datetime(*info.date_time, tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def _inside(name: str) -> PurePosixPath | None:
    """The member's path if it stays below the folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or not path.parts or ":" in path.parts[0]:
        return None
    return path
