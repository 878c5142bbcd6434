"""Which experiment next, and why."""

from kgagent.planner.loop import LoopReport as LoopReport
from kgagent.planner.loop import loop as loop
from kgagent.planner.plan import plan as plan
from kgagent.planner.propose import default_knobs as default_knobs
from kgagent.planner.propose import hypothesis_for as hypothesis_for
from kgagent.planner.propose import propose as propose
from kgagent.planner.propose import spelled as spelled
from kgagent.planner.records import Plan as Plan
from kgagent.planner.records import Ranked as Ranked
