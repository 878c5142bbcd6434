"""Serialised HLO as text: beside a trace, inside it, or wherever a HloProto stands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kgagent.errors import EvidenceError, Unavailable
from kgagent.evidence.wire import fields, nested, text

# XSpace.planes, XPlane.{name, event_metadata, stat_metadata}, XEventMetadata.{name, stats}, XStat.{metadata_id, bytes_value}, HloProto.hlo_module
_PLANES, _NAME, _EVENT_METADATA, _STAT_METADATA, _VALUE, _EVENT_STATS, _STAT_ID, _STAT_BYTES, _MODULE = 1, 2, 4, 5, 2, 5, 1, 6, 1


def module_text(proto: bytes | memoryview, *, where: str = "") -> str:
    """The text of a HloProto (or of the HloModuleProto in it), as the installed jaxlib prints it."""
    module = next(nested(proto, _MODULE, where=where), None)
    if module is None:
        raise EvidenceError("no HLO module in that file", where=where)
    try:
        return str(_hlo_module().from_serialized_hlo_module_proto(bytes(module)).to_string())
    except (RuntimeError, ValueError, TypeError) as error:
        raise EvidenceError(f"the HLO module can't be read: {error}", where=where, hint="dump HLO as text instead") from error


def _hlo_module() -> Any:
    try:
        from jaxlib import _hlo

        return _hlo.HloModule
    except ImportError:
        pass
    try:  # before jaxlib 0.11 the class stood elsewhere
        from jaxlib import xla_client

        return xla_client._xla.HloModule
    except (ImportError, AttributeError) as error:
        raise Unavailable("reading serialised HLO needs jaxlib", hint='pip install "kgagent[jax]"') from error


def modules_in_trace(data: bytes, *, where: str = "") -> Iterator[tuple[str, str]]:
    """(name, HLO text) of the modules kept in a trace's metadata plane; none where jax lost them."""
    for plane in nested(data, _PLANES, where=where):
        name = next((text(value) for number, value in fields(plane, where=where) if number == _NAME), "")
        if name != "/host:metadata":
            continue
        hlo_stat = _stat_id(plane, where)
        for entry in nested(plane, _EVENT_METADATA, where=where):
            for metadata in nested(entry, _VALUE, where=where):
                label = next((text(value) for number, value in fields(metadata) if number == _NAME), "")
                for stat in nested(metadata, _EVENT_STATS):
                    facts = dict(fields(stat))
                    proto = facts.get(_STAT_BYTES)
                    if isinstance(proto, memoryview) and (hlo_stat is None or facts.get(_STAT_ID) == hlo_stat):
                        yield label.partition("(")[0], module_text(proto, where=where)


def _stat_id(plane: memoryview, where: str) -> int | None:
    for entry in nested(plane, _STAT_METADATA, where=where):
        facts = dict(fields(entry))
        value = facts.get(_VALUE)
        name = next((text(v) for number, v in fields(value) if number == _NAME), "") if isinstance(value, memoryview) else ""
        key = facts.get(1)
        if name.lower().replace(" ", "_") in ("hlo_proto", "hlo_proto_"):
            return key if isinstance(key, int) else None
    return None


def modules_beside(folder: Path) -> Iterator[tuple[str, str]]:
    """(name, HLO text) of the `*.hlo_proto.pb` files that xprof keeps beside a trace."""
    for path in sorted(folder.glob("*.hlo_proto.pb")):
        yield path.name.partition("(")[0].removesuffix(".hlo_proto.pb"), module_text(path.read_bytes(), where=str(path))
