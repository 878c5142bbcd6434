"""kgagent: an embedded knowledge-graph agent that makes JAX models and Pallas kernels faster on TPUs, and remembers why."""

__version__ = "0.1.0"
