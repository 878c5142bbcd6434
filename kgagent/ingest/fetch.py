"""Sources that must be brought first: `pypi:` through pip, `git:` through git. Downloaded and unpacked, never installed or run."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from kgagent.errors import IngestError
from kgagent.ingest.archives import unpack
from kgagent.ingest.sources import Source
from kgagent.process import Finished, run_limited

DOWNLOAD_S = 900.0
PYPI = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:==([A-Za-z0-9.!+_-]+))?\Z")
# pip prepares an sdist's metadata by running its build. Asking pip's own finder for the link, and fetching that, runs nothing.
FETCH_SDIST = """
import sys
from pip._internal.commands import create_command
command = create_command("download")
with command.main_context():
    options, _ = command.parse_args(["--no-deps", "--no-binary=:all:", "-d", sys.argv[2], "x"])
    session = command._build_session(options)
    finder = command._build_package_finder(options, session)
    from pip._internal.req.constructors import install_req_from_line
    requirement = install_req_from_line(sys.argv[1])
    best = finder.find_best_candidate(requirement.name, requirement.specifier).best_candidate
    if best is None:
        sys.exit("no matching distribution")
    import shutil
    from pathlib import Path
    if best.link.is_file:
        shutil.copy(best.link.file_path, sys.argv[2])
    else:
        response = session.get(best.link.url.split("#", 1)[0], stream=True)
        response.raise_for_status()
        data = response.raw.read()
        if best.link.hash_name:
            import hashlib
            if hashlib.new(best.link.hash_name, data).hexdigest() != best.link.hash:
                sys.exit("the file's hash is not the index's")
        (Path(sys.argv[2]) / best.link.filename).write_bytes(data)
"""


def fetch(locator: str, trees: Path) -> Source:
    """Bring a `pypi:` or `git:` source below `trees` and describe it; what is there already is used as it is."""
    scheme, _, rest = locator.partition(":")
    trees.mkdir(parents=True, exist_ok=True)
    return from_pypi(rest, locator, trees) if scheme == "pypi" else from_git(rest, locator, trees)


def from_pypi(requirement: str, locator: str, trees: Path) -> Source:
    matched = PYPI.match(requirement)
    if matched is None:
        raise IngestError(f"not a package and version: {requirement!r}", where=locator, hint="pypi:NAME or pypi:NAME==VERSION")
    name, pinned = matched.groups()
    known = trees / f"pypi-{canonical(name)}-{pinned}"
    if pinned and known.is_dir():
        return pypi_source(name, pinned, locator, known)
    with tempfile.TemporaryDirectory(dir=trees, prefix=".download-") as folder:
        archive = download(requirement, Path(folder), locator)
        version = version_in(archive.name, name)
        tree = trees / f"pypi-{canonical(name)}-{version}"
        if not tree.is_dir():
            unpack(archive, tree)
    return pypi_source(name, version, locator, tree)


def download(requirement: str, folder: Path, locator: str) -> Path:
    """The wheel, or where there is none the sdist."""
    flags = ["--no-deps", "--ignore-requires-python", "--only-binary=:all:", "--disable-pip-version-check", "--no-input", "-q", "-d", str(folder)]
    finished = run_limited([sys.executable, "-m", "pip", "download", *flags, requirement], wall_s=DOWNLOAD_S)
    if finished.returncode != 0:
        wheel_error = finished
        finished = run_limited([sys.executable, "-c", FETCH_SDIST, requirement, str(folder)], wall_s=DOWNLOAD_S)
        if finished.returncode != 0:
            raise IngestError(f"pip can't download it: {last_line(wheel_error)}", where=locator, hint="check the name, the version and the network")
    found = sorted(folder.iterdir())
    if not found:
        raise IngestError("pip downloaded nothing", where=locator)
    return found[0]


def pypi_source(name: str, version: str, locator: str, tree: Path) -> Source:
    """A wheel's top folders are import names; an sdist has one folder around it all."""
    tops = sorted(entry.name for entry in tree.iterdir() if not entry.name.endswith((".dist-info", ".data")))
    inner = tree / tops[0] if len(tops) == 1 else tree
    if len(tops) == 1 and ((inner / "PKG-INFO").exists() or (inner / "pyproject.toml").exists() or (inner / "setup.py").exists()):
        return Source(canonical(name), locator, inner, version)
    if not tops:
        raise IngestError(f"{name} {version} holds no source", where=locator)
    return Source(canonical(name), locator, tree, version, "", tuple(tops))


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def version_in(filename: str, name: str) -> str:
    """The version in a wheel's or sdist's file name."""
    stem = re.sub(r"\.(whl|tar\.gz|zip|tgz)\Z", "", filename)
    if filename.endswith(".whl"):
        return stem.split("-")[1]
    return stem[len(name) + 1 :] if canonical(stem).startswith(canonical(name)) else stem.rpartition("-")[2]


def from_git(rest: str, locator: str, trees: Path) -> Source:
    """A revision of a repository, through `git archive`: its work tree, hooks and configuration stay untouched."""
    where, revision = split_revision(rest)
    if not where or where.startswith("-") or revision.startswith("-"):
        raise IngestError(f"not a repository: {rest!r}", where=locator, hint="git:FOLDER_OR_URL or git:FOLDER_OR_URL@REVISION")
    local = Path(where).expanduser()
    name = re.sub(r"[^\w.-]", "-", where.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git").rsplit(":", 1)[-1]) or "repository"
    with tempfile.TemporaryDirectory(dir=trees, prefix=".git-") as folder:
        repository = local.resolve() if local.exists() else clone(where, revision, Path(folder) / "clone", locator)
        commit = git(["-C", str(repository), "rev-parse", "--verify", "--end-of-options", f"{revision or 'HEAD'}^{{commit}}"], locator).strip()
        tree = trees / f"git-{name}-{commit[:12]}"
        if not tree.is_dir():
            archive = Path(folder) / "tree.tar"
            git(["-C", str(repository), "archive", "--format=tar", "-o", str(archive), commit], locator)
            unpack(archive, tree)
    return Source(name, locator, tree, commit)


def split_revision(rest: str) -> tuple[str, str]:
    """`url@rev`; the @ of `git@host:path` and of `https://user@host/path` is part of the address."""
    where, at, revision = rest.rpartition("@")
    if at and ":" not in revision and "/" not in revision and where:
        return where, revision
    if at and "/" in revision and "://" not in rest and ":" not in rest:  # a local folder at a branch such as feature/x
        return where, revision
    return rest, ""


def clone(url: str, revision: str, folder: Path, locator: str) -> Path:
    """As little history as the server allows; a bare commit hash may need all of it."""
    shallow = ["clone", "--quiet", "--bare", "--depth", "1"]
    wanted = [*shallow, *(["--branch", revision] if revision else []), "--", url, str(folder)]
    finished = run_git(wanted)
    if finished.returncode != 0 and revision:
        shutil.rmtree(folder, ignore_errors=True)
        finished = run_git(["clone", "--quiet", "--bare", "--", url, str(folder)])
    if finished.returncode != 0:
        raise IngestError(f"git can't clone it: {last_line(finished)}", where=locator, hint="check the address and the revision")
    return folder


def git(arguments: list[str], locator: str) -> str:
    finished = run_git(arguments)
    if finished.returncode != 0:
        raise IngestError(f"git: {last_line(finished)}", where=locator, hint="give a repository and a revision it has")
    return finished.stdout


def run_git(arguments: list[str]) -> Finished:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1", "GIT_OPTIONAL_LOCKS": "0"}
    return run_limited(["git", "-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", *arguments], env=environment, wall_s=DOWNLOAD_S)


def last_line(finished: Finished) -> str:
    lines = [line for line in (finished.stderr or finished.stdout).splitlines() if line.strip()]
    return lines[-1].removeprefix("ERROR: ").removeprefix("fatal: ") if lines else finished.killed_by or f"exit {finished.returncode}"
