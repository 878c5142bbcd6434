"""LLO dumps of a compile: the flags that keep them small, and the bound that keeps them from filling the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from kgagent.errors import StorageError

DUMP_LIMIT_BYTES = 2**30
_FINAL_PASSES = ".*final.*"  # without it a dump is thirty times larger and the compile takes twice as long


def dump_flags(folder: Path) -> str:
    """libtpu's own flags, read once a process; dump flags are refused as compiler options. Makes the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"can't make the dump folder: {error.strerror or error}", where=str(folder), hint="choose a folder you can write to") from error
    return (
        f"--xla_jf_dump_to={folder.resolve()} --xla_jf_dump_llo_text=true --xla_jf_dump_llo_pass_label_regex={_FINAL_PASSES} "
        "--xla_mosaic_enable_llo_source_annotations=true"
    )


def bound_dump(folder: Path, limit_bytes: int = DUMP_LIMIT_BYTES) -> int:
    """The dump's size; one beyond the limit is deleted and refused."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > limit_bytes:
        shutil.rmtree(folder, ignore_errors=True)
        what = f"the dump grew to {size / 2**20:.0f} MiB and was deleted"
        raise StorageError(what, where=str(folder), hint=f"dump a smaller program: the limit is {limit_bytes / 2**20:.0f} MiB")
    return size
