"""Every module the graph knows, by dotted name, with its surface read when somebody looks."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kgagent.ingest.shapes import Surface


@dataclass(slots=True)
class Module:
    """One ingested module. `suffix` sets apart a second source that defines the same dotted name."""

    name: str
    source: int
    file: int
    suffix: str
    packed: bytes | None = None
    loaded: Surface | None = None
    document: bool = False  # a text file: its sections have ids, but nobody imports them

    def symbol_id(self, qual: str) -> str:
        if self.document:
            return f"sec:{self.name}#{qual}"
        return f"sym:{self.name}.{qual}{self.suffix}" if qual else f"sym:{self.name}{self.suffix}"


class Modules:
    """Lookups by name; where two sources define one module, a source sees its own first."""

    def __init__(self, load: Callable[[int], bytes | None]) -> None:
        self._load = load
        self._by_name: dict[str, list[Module]] = {}
        self.shared = False

    def add(self, module: Module) -> None:
        """In order of ingestion: the first source to define a name owns it."""
        known = self._by_name.setdefault(module.name, [])
        known.append(module)
        if len(known) > 1:
            self.shared = True

    def remove(self, name: str, file: int | None) -> None:
        known = [m for m in self._by_name.get(name, ()) if m.file != file]
        if known:
            self._by_name[name] = known
        else:
            self._by_name.pop(name, None)

    def get(self, name: str, home: int) -> Module | None:
        known = self._by_name.get(name)
        if not known:
            return None
        if len(known) > 1:
            for module in known:
                if module.source == home:
                    return module
        return known[0]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def all(self) -> Iterable[Module]:
        for known in self._by_name.values():
            yield from known

    def owned_elsewhere(self, name: str, source: int) -> bool:
        """Whether another source defined this name first."""
        known = self._by_name.get(name)
        return known is not None and known[0].source != source

    def surface(self, module: Module) -> Surface:
        if module.loaded is None:
            packed = module.packed if module.packed is not None else self._load(module.file)
            module.loaded = unpack(packed) if packed else {"d": {}}
            module.packed = None
        return module.loaded


def unpack(packed: bytes) -> Any:
    return json.loads(zlib.decompress(packed).decode("utf-8", "surrogatepass"))


def pack(value: Any) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass"), 1)
