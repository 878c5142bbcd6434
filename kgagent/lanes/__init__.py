"""Lanes: what is optimised and how it is judged, read from a folder a person edits."""

from kgagent.lanes.knobs import candidate_code_sha as candidate_code_sha
from kgagent.lanes.knobs import canonical_knobs as canonical_knobs
from kgagent.lanes.knobs import matching_levers as matching_levers
from kgagent.lanes.load import find_lane as find_lane
from kgagent.lanes.load import list_lanes as list_lanes
from kgagent.lanes.load import load_lane as load_lane
from kgagent.lanes.load import read_lane as read_lane
from kgagent.lanes.load import shipped_lanes as shipped_lanes
from kgagent.lanes.records import Budgets as Budgets
from kgagent.lanes.records import GateRule as GateRule
from kgagent.lanes.records import Knob as Knob
from kgagent.lanes.records import Lane as Lane
from kgagent.lanes.records import LaneLever as LaneLever
from kgagent.lanes.records import OpPoint as OpPoint
from kgagent.lanes.sync import sync_lane as sync_lane
from kgagent.lanes.trace import Traced as Traced
from kgagent.lanes.trace import trace as trace
