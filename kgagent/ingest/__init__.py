"""Source into graph: repo walk, tree-sitter symbols, JAX and Pallas extraction.

Names load when they are asked for: a parsing process needs a third of this package, `kgagent kernels` a tenth.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kgagent.ingest.callers import kernel_callers as kernel_callers
    from kgagent.ingest.forgetting import forget as forget
    from kgagent.ingest.lookup import list_flags as list_flags
    from kgagent.ingest.query import list_kernels as list_kernels
    from kgagent.ingest.query import list_sources as list_sources
    from kgagent.ingest.records import Caller as Caller
    from kgagent.ingest.records import FlagRow as FlagRow
    from kgagent.ingest.records import IngestReport as IngestReport
    from kgagent.ingest.records import KernelCallers as KernelCallers
    from kgagent.ingest.records import KernelRow as KernelRow
    from kgagent.ingest.records import Place as Place
    from kgagent.ingest.records import Skipped as Skipped
    from kgagent.ingest.records import SourceRow as SourceRow
    from kgagent.ingest.records import Tunable as Tunable
    from kgagent.ingest.run import ingest as ingest
    from kgagent.ingest.run import restore as restore

_HOMES = {
    "kernel_callers": "callers",
    "forget": "forgetting",
    "list_flags": "lookup",
    "list_kernels": "query",
    "list_sources": "query",
    "Caller": "records",
    "FlagRow": "records",
    "IngestReport": "records",
    "KernelCallers": "records",
    "KernelRow": "records",
    "Place": "records",
    "Skipped": "records",
    "SourceRow": "records",
    "Tunable": "records",
    "ingest": "run",
    "restore": "run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
