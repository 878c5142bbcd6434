"""One file from disk or store to `Parsed`, in whichever process: read, decode, hash, keep the bytes, extract."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from kgagent.ingest.documents import KINDS, PDF, read_document, read_pages
from kgagent.ingest.facts import read_python
from kgagent.ingest.modules import pack
from kgagent.ingest.shapes import FAULTS, Parsed, Unreadable
from kgagent.objects import Objects, sha256_hex

_CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
# More than this share of a file inside syntax errors: it is not Python, and what seems to parse in it means nothing.
MAX_ERROR_SHARE = 0.2


class Task(NamedTuple):
    """A file to read. `disk` is a path, or the hash of stored bytes when `stored`."""

    number: int
    path: str  # relative to the source
    disk: str
    stored: bool
    module: str
    is_package: bool
    submodules: tuple[str, ...]  # names of the modules directly below a package
    objects: str  # folder of the object store


def parse(task: Task) -> Parsed:
    """Read one file; whatever is wrong with it ends in `status` and `reason`, never in an exception."""
    objects = Objects(Path(task.objects))
    try:
        data = objects.get(task.disk) if task.stored else Path(task.disk).read_bytes()
    except OSError as error:
        return failed(task, "", 0, f"can't be read: {error.strerror}")
    sha = task.disk if task.stored else objects.put(data, durable=False)
    try:
        return extract(task, data, sha)
    except Unreadable as error:
        return failed(task, sha, len(data), str(error))
    except RecursionError:
        return failed(task, sha, len(data), "nested too deeply to read")
    except FAULTS as error:
        return failed(task, sha, len(data), f"a fault in reading it: {type(error).__name__}: {error}")


def extract(task: Task, data: bytes, sha: str) -> Parsed:
    """What a file's bytes hold; a file that isn't what its name says is skipped with the reason."""
    kind = KINDS.get(Path(task.path).suffix)
    if kind == PDF:
        symbols, facts_of_pages = read_pages(data)
        return Parsed(task.number, sha, len(data), "ok", "", "", symbols, b"", pack(facts_of_pages), {})
    text, problem = as_utf8(data)
    if problem:
        return failed(task, sha, len(data), problem)
    if kind is not None:
        symbols, facts_of_text = read_document(text.decode(), kind)
        return Parsed(task.number, sha, len(data), "ok", "", "", symbols, b"", pack(facts_of_text), {})
    symbols, surface, facts, tunables, root = read_python(text, task.module, task.is_package, task.submodules)
    status, reason = "ok", ""
    if root.has_error:
        line, lost = errors_in(root)
        if lost > MAX_ERROR_SHARE * max(1, len(text)):
            return failed(task, sha, len(data), f"doesn't parse (line {line})")
        status, reason = "partial", f"a syntax error on line {line}; the rest was read"
    return Parsed(task.number, sha, len(data), status, reason, task.module, symbols, surface, facts, tunables)


def failed(task: Task, sha: str, size: int, reason: str) -> Parsed:
    return Parsed(task.number, sha or sha256_hex(b""), size, "skipped", reason, task.module, [], b"", b"", {})


def as_utf8(data: bytes) -> tuple[bytes, str]:
    """The source as UTF-8, by PEP 263; or why not."""
    if b"\x00" in data:
        return b"", "holds NUL bytes: not source"
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    try:
        data.decode("utf-8")
        return data, ""
    except UnicodeDecodeError as error:
        for line in data.split(b"\n", 2)[:2]:
            found = _CODING.match(line)
            if found:
                name = found.group(1).decode("ascii", "replace")
                try:
                    return data.decode(name).encode("utf-8"), ""
                except (LookupError, ValueError):
                    return b"", f"not {name}, as its coding line says"
        return b"", f"not UTF-8 (byte {error.start}), and no coding line says otherwise"


def errors_in(root: Any) -> tuple[int, int]:
    """(line of the first error, bytes inside errors)."""
    first, lost = 0, 0
    queue = [root]
    while queue:
        node = queue.pop()
        if node.type == "ERROR" or node.is_missing:
            first = min(first or node.start_point[0] + 1, node.start_point[0] + 1)
            lost += node.end_byte - node.start_byte
        elif node.has_error:
            queue.extend(node.children)
    return first or 1, lost
