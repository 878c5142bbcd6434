"""Source into graph: repo walk, tree-sitter symbols, JAX and Pallas extraction."""

from kgagent.ingest.callers import kernel_callers as kernel_callers
from kgagent.ingest.forget import forget as forget
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
