"""Runs experiments, judges them, and remembers: nothing a proposer says is taken on trust."""

from kgagent.executor.frontier import frontier as frontier
from kgagent.executor.journal import one_loop as one_loop
from kgagent.executor.memory import create_hypothesis as create_hypothesis
from kgagent.executor.preflight import preflight as preflight
from kgagent.executor.preflight import refile_preflights as refile_preflights
from kgagent.executor.records import ExperimentReport as ExperimentReport
from kgagent.executor.records import FrontierRow as FrontierRow
from kgagent.executor.records import Preflight as Preflight
from kgagent.executor.records import VerifyReport as VerifyReport
from kgagent.executor.refile import RefileReport as RefileReport
from kgagent.executor.refile import refile as refile
from kgagent.executor.refile import refile_all as refile_all
from kgagent.executor.report import experiment_report as experiment_report
from kgagent.executor.run import ensure_reference as ensure_reference
from kgagent.executor.run import resume as resume
from kgagent.executor.run import run_experiment as run_experiment
from kgagent.executor.verify import verify as verify
