"""PDF as the text of its pages and its outline, by pypdf in a limited process of its own: a PDF may hang or flood what reads it."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kgagent
from kgagent.ingest.shapes import FAULTS, Unreadable

WALL_S = 120.0
MEMORY_MB = 2048
OUTPUT_KB = 32_768
MAX_PAGES = 2_000
MISSING = "PDF is read with pypdf, which is not installed: pip install 'kgagent[documents]', then ingest again"


@dataclass(frozen=True, slots=True)
class Pdf:
    """Pages as text, and (page, level, title) of each bookmark; pages count from 1."""

    pages: list[str]
    outline: list[tuple[int, int, str]]


def available() -> bool:
    """Whether there is an extractor; looked up without importing it."""
    return importlib.util.find_spec("pypdf") is not None


def read_pdf(data: bytes) -> Pdf:
    """The document; `Unreadable` says why not."""
    from kgagent.process import run_limited

    if not available():
        raise Unreadable(MISSING)
    here = str(Path(kgagent.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in (here, os.environ.get("PYTHONPATH", "")) if part)}
    argv = [sys.executable, "-P", "-W", "ignore", "-c", "from kgagent.ingest.pdf import main; main()"]
    finished = run_limited(argv, env=environment, wall_s=WALL_S, memory_mb=MEMORY_MB, output_kb=OUTPUT_KB, stdin=data)
    if finished.returncode != 0 or finished.killed_by:
        last = (finished.stderr.strip().splitlines() or [f"it ended with {finished.returncode}"])[-1]
        raise Unreadable(f"not a readable PDF: {f'its {finished.killed_by} limit was met' if finished.killed_by else last}")
    document = json.loads(finished.stdout)
    return Pdf(document["pages"], [(page, level, title) for page, level, title in document["outline"]])


def main() -> None:
    """In the limited process: a PDF on stdin, JSON on stdout."""
    import io
    import logging

    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = PdfReader(io.BytesIO(sys.stdin.buffer.read()))
        pages = [plain(page.extract_text()) for page in reader.pages[:MAX_PAGES]]
        outline = list(bookmarks(reader, reader.outline, 1))
    except (PyPdfError, OSError, *FAULTS) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    json.dump({"pages": pages, "outline": outline}, sys.stdout)


def bookmarks(reader: Any, items: list[Any], level: int) -> Any:
    """(page, level, title) of an outline, depth first; bookmarks that lead nowhere are left out."""
    for item in items:
        if isinstance(item, list):
            yield from bookmarks(reader, item, level + 1)
        else:
            page = reader.get_destination_page_number(item)
            if page is not None and page >= 0:
                yield page + 1, level, plain(str(item.title)).strip()


def plain(text: str) -> str:
    """Text that UTF-8 and SQLite hold."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "")
