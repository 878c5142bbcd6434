"""A lane small enough to run in seconds: x @ w, with honest candidates and with bad ones, each a choice of the knob `impl`."""

from __future__ import annotations

from kgagent.executor import create_hypothesis
from kgagent.graph import Graph
from kgagent.lanes import Lane, load_lane
from kgagent.workspace import Workspace

REFERENCE = """
import jax
import jax.numpy as jnp

def reference(x, w):
    step = lambda k, acc: acc + x[:, k][:, None] * w[k][None, :]  # one rank at a time
    rounds = lambda _, acc: jax.lax.fori_loop(0, x.shape[1], step, acc * 0)  # all but the last are wasted
    return jax.lax.fori_loop(0, 8, rounds, jnp.zeros_like(x))
"""

INPUTS = """
import jax

def inputs(seed, op_point):
    n = op_point["n"]
    a, b = jax.random.split(jax.random.key(seed))
    return jax.random.normal(a, (n, n), "float32"), jax.random.normal(b, (n, n), "float32")

def min_flops(op_point):
    return 2.0 * op_point["n"] ** 3
"""

CANDIDATE = """
import os, signal, sys, time
import jax
import jax.numpy as jnp

def candidate(x, w, *, impl):
    if impl == "raises":
        raise RuntimeError("no such luck")
    if impl == "exits":
        sys.exit(7)
    if impl == "hangs":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    if impl == "floods":
        for _ in range(2**14):
            sys.stdout.write("x" * 2**16)
    if impl == "forks":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            os.setsid()
            with open(os.path.join(os.path.dirname(candidate.__code__.co_filename), "pid"), "w") as note:
                note.write(str(os.getpid()))
            time.sleep(600)
        time.sleep(600)
    if impl == "hoards":
        held = []
        while True:
            held.append(b"z" * 2**24)
    if impl == "callback":
        return jax.pure_callback(lambda a, b: a @ b, jax.ShapeDtypeStruct(x.shape, x.dtype), x, w)
    if impl == "nan":
        return (x @ w).at[0, 0].set(jnp.nan)
    if impl == "dtype":
        return (x @ w).astype(jnp.bfloat16)
    if impl == "shape":
        return (x @ w)[:, :-1]
    if impl == "tail":
        return (x @ w).at[-1].set(0.0)
    if impl == "imprecise":
        return (x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(x.dtype)
    if impl == "ignores":
        return x + 0 * w
    if impl == "edits":
        with open(os.path.join(os.path.dirname(candidate.__code__.co_filename), "inputs.py"), "a") as file:
            file.write("\\n# easier\\n")
        return x @ w
    if impl in ("dot", "claims_loop"):
        return x @ w
    if impl == "slow":
        return ranks(x, w, 80)
    return ranks(x, w, 8)

def ranks(x, w, count):
    step = lambda k, acc: acc + x[:, k][:, None] * w[k][None, :]
    rounds = lambda _, acc: jax.lax.fori_loop(0, x.shape[1], step, acc * 0)
    return jax.lax.fori_loop(0, count, rounds, jnp.zeros_like(x))
"""

TRIES = 3  # of an experiment whose effect a busy machine can hide, never of a wrong verdict
IMPLS = (
    "plain", "dot", "slow", "claims_loop", "raises", "exits", "hangs", "floods", "forks", "hoards", "callback", "nan", "dtype", "shape", "tail", "imprecise",
    "ignores", "edits",
)  # fmt: skip

LANE = f"""
[lane]
name = "toy"
kind = "kernel"
metric = "step_ms"
unit = "ms"
direction = "min"
[scope]
problem = "matrix product"
harness = "test"
[[op_points]]
name = "n160"
role = "timed"
n = 160
[[op_points]]
name = "n37"
role = "parity"
n = 37
[gates.immutable]
mandatory = true
[gates.signature]
mandatory = true
[gates.finite]
mandatory = true
[gates.parity]
mandatory = true
times_floor = 6.0
seeds = 1
[gates.inputs_unchanged]
mandatory = true
[gates.coverage]
mandatory = true
[gates.determinism]
mandatory = true
[gates.callbacks]
mandatory = true
[gates.not_a_noop]
mandatory = true
[gates.mechanism]
mandatory = true
[gates.timed_output]
mandatory = true
[gates.roofline]
mandatory = false
[budgets]
trace_s = 60
run_s = 30
memory_mb = 1500
output_kb = 64
pairs = 3
samples_per_pair = 5
aa_pairs = 2
[guards.temp_mb]
bound = 500.0
[knobs.impl]
default = "plain"
choices = {list(IMPLS)!r}
[[levers]]
knob = "impl"
value = "claims_loop"
statement = "It loops."
mechanism = "A loop."
predicted_signal = "A loop in the HLO."
falsification = "No gain."
prior = 0.5
expected_gain = 1.5
[levers.expect]
cpu.expect = ['\\bwhile\\(']
"""


def write_toy(workspace: Workspace) -> Lane:
    """Put the lane into the workspace and load it."""
    folder = workspace.lanes / "toy"
    folder.mkdir(parents=True)
    for name, text in (("lane.toml", LANE), ("reference.py", REFERENCE), ("inputs.py", INPUTS), ("candidate.py", CANDIDATE)):
        (folder / name).write_text(text)
    return load_lane(workspace, "toy")


def impatient(workspace: Workspace) -> Lane:
    """The lane with a short limit on tracing, for candidates that never end: all others may take what a busy machine needs."""
    path = workspace.lanes / "toy" / "lane.toml"
    text = path.read_text()
    assert "trace_s = 60" in text
    path.write_text(text.replace("trace_s = 60", "trace_s = 4", 1))
    return load_lane(workspace, "toy")


def propose(graph: Graph, lane: Lane, impl: str, *, whats_new: str = "", expected_gain: float | None = None) -> str:
    """A hypothesis on one choice."""
    return create_hypothesis(
        graph, lane, {"impl": impl}, statement=f"{impl} is faster", mechanism="less is written", predicted_signal="a dot", falsification="no gain",
        origin="test", lever=f"lever:toy/impl={impl}", prior=0.5, expected_gain=expected_gain, cost_minutes=0.1, whats_new=whats_new,
    )  # fmt: skip
