"""Write constraints.txt: what pip resolves today for every supported Python found here, merged with markers.

Pins without registry addresses, so that the file says what is installed and nothing of where from.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.11", "3.12", "3.13")


def python_for(version: str) -> str | None:
    """A Python of that version: on the path, else pyenv's newest."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for candidate in [f"python{version}", *sorted(map(str, pyenv.glob(f"{version}.*/bin/python")), reverse=True)]:
        try:
            found = subprocess.run([candidate, "-c", "import sys, venv; print(sys.executable)"], capture_output=True, text=True)
        except OSError:
            continue
        if found.returncode == 0:
            return found.stdout.strip()
    return None


def resolved(python: str) -> dict[str, str]:
    """Names and versions of a fresh environment with everything the project can ask for."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)
        inside = f"{folder}/bin/python"
        subprocess.run([inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--editable", f"{ROOT}[demo,all,dev]"], check=True)
        frozen = subprocess.run([inside, "-m", "pip", "freeze", "--exclude-editable"], check=True, capture_output=True, text=True).stdout
    return dict(line.split("==", 1) for line in frozen.splitlines() if "==" in line)


def main() -> None:
    pins: dict[str, dict[str, str]] = defaultdict(dict)
    for version in VERSIONS:
        python = python_for(version)
        if python is None:
            sys.exit(f"no Python {version} here; constraints.txt needs all of {', '.join(VERSIONS)}")
        for name, pin in resolved(python).items():
            pins[name][version] = pin
    lines = ["# Pinned by `make constraints`; pip reads it with --constraint.", ""]
    for name in sorted(pins, key=str.lower):
        groups: dict[str, list[str]] = defaultdict(list)
        for version, pin in pins[name].items():
            groups[pin].append(version)
        for pin, versions in groups.items():
            marker = "" if len(versions) == len(VERSIONS) else "; " + " or ".join(f'python_version == "{v}"' for v in versions)
            lines.append(f"{name}=={pin}{marker}")
    (ROOT / "constraints.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
