"""Just enough of the protobuf wire format to check a file and to take HLO modules out of it; no schema, no TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator

from kgagent.errors import EvidenceError


def fields(data: bytes | memoryview, *, where: str = "") -> Iterator[tuple[int, int | memoryview]]:
    """(field number, value) of a message; length-delimited values as views. `EvidenceError` where the bytes aren't one."""
    view = memoryview(data)
    at, size = 0, len(view)
    while at < size:
        tag, at = _varint(view, at, where)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise _broken(where)
        if kind == 0:
            value, at = _varint(view, at, where)
            yield number, value
        elif kind == 2:
            length, at = _varint(view, at, where)
            if at + length > size:
                raise EvidenceError("the file is cut off", where=where, hint="copy it again; the writer may have been killed")
            yield number, view[at : at + length]
            at += length
        elif kind in (1, 5):
            width = 8 if kind == 1 else 4
            if at + width > size:
                raise _broken(where)
            yield number, int.from_bytes(view[at : at + width], "little")
            at += width
        else:
            raise _broken(where)


def _varint(view: memoryview, at: int, where: str) -> tuple[int, int]:
    value = shift = 0
    while at < len(view) and shift < 70:
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise _broken(where)


def _broken(where: str) -> EvidenceError:
    return EvidenceError("not a profile: these bytes are no protobuf", where=where, hint="give the *.xplane.pb that jax.profiler wrote")


def text(value: int | memoryview) -> str:
    """A string field."""
    return bytes(value).decode("utf-8", errors="replace") if isinstance(value, memoryview) else ""


def nested(data: bytes | memoryview, number: int, *, where: str = "") -> Iterator[memoryview]:
    """The messages of one repeated field."""
    for field, value in fields(data, where=where):
        if field == number and isinstance(value, memoryview):
            yield value
