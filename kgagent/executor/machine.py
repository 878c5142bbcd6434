"""What this machine is, as a scope names it; numbers of two machines never meet."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path


def cpu_model() -> str:
    """The processor's own name where the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(("model name", "Model")) and ":" in line:
                return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def version(package: str) -> str:
    """An installed distribution's version, '' where absent; asks no package to import itself."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def environment() -> dict[str, str]:
    """What a receipt keeps of where a run took place."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": cpu_model(),
        "cores": str(cores()),
        "jax": version("jax"),
        "jaxlib": version("jaxlib"),
        "numpy": version("numpy"),
        "kgagent": version("kgagent"),
    }
