"""The TPU compiler with no TPU: ahead-of-time compilation and what it can decide."""

from kgagent.compiler.aot import aot_compile as aot_compile
from kgagent.compiler.flags import FlagRow as FlagRow
from kgagent.compiler.flags import FlagsAudit as FlagsAudit
from kgagent.compiler.flags import audit_flags as audit_flags
from kgagent.compiler.records import Compiled as Compiled
from kgagent.compiler.records import CompilerStatus as CompilerStatus
from kgagent.compiler.records import Memory as Memory
from kgagent.compiler.records import Refusal as Refusal
from kgagent.compiler.status import compiler_status as compiler_status
from kgagent.compiler.target import known_topologies as known_topologies
from kgagent.compiler.target import target_context as target_context
from kgagent.compiler.target import target_of as target_of
