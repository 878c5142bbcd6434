"""Where source comes from: a locator becomes a folder to read, a stable name and a revision. Nothing is imported or run."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from kgagent.errors import IngestError, UnknownThing, UsageError
from kgagent.ingest.documents import SUFFIXES
from kgagent.ingest.records import FETCHED

READ_SUFFIXES = (".py", *SUFFIXES)


@dataclass(frozen=True, slots=True)
class Source:
    """A tree to read. `prefix` is the dotted name of `root` where that is known; None means: see from `__init__.py` files."""

    name: str
    locator: str
    root: Path
    revision: str  # '' where only the bytes tell
    prefix: str | None = None
    folders: tuple[str, ...] = ("",)  # below root; a file is a folder of one


def locate(locator: str, trees: Path) -> Source:
    """The source a person means, fetched below `trees` where it must be; `IngestError` says what else they could write."""
    scheme, _, rest = locator.partition(":")
    if scheme == "pkg":
        return installed(rest, locator)
    if scheme in FETCHED:
        from kgagent.ingest.fetch import fetch

        return fetch(locator, trees)
    return on_disk(locator)


def on_disk(locator: str) -> Source:
    """A folder, or one file of a kind that is read."""
    path = Path(locator).expanduser()
    if not path.exists():
        installed_hint = f"kgagent ingest pkg:{locator}" if re.fullmatch(r"[A-Za-z][\w.-]*", locator) else "give a folder, a file, or pkg:NAME"
        raise UnknownThing("no such folder or file", where=locator, hint=f"for an installed package: {installed_hint}")
    path = path.resolve()
    if not path.is_dir():
        if not path.is_file():
            raise UsageError("neither a folder nor an ordinary file", where=locator, hint="give a folder, a file, or pkg:NAME")
        if path.suffix not in READ_SUFFIXES:
            raise UsageError(f"no reader for {path.suffix or 'a file without suffix'}", where=locator, hint=f"read are {', '.join(READ_SUFFIXES)}")
    name = re.sub(r"[^\w.-]", "-", path.stem if path.is_file() else path.name) or "root"
    if path.is_file():
        return Source(name, str(path), path.parent, "", folders=(path.name,))
    return Source(name, str(path), path, "")


def installed(name: str, locator: str) -> Source:
    """An installed package by its import name or its distribution's name; `pkg:jax/experimental/pallas` is a part of one."""
    top, *parts = [part for part in re.split(r"[/.]", name) if part] or [""]
    if not re.fullmatch(r"[\w-]+", top):
        raise UsageError(f"not a package name: {name!r}", where=locator, hint="pkg:NAME or pkg:NAME/sub/folder")
    spec = find_top(top)
    if spec is None:
        return installed_distribution(name, top, locator)
    version = version_of(top)
    if spec.submodule_search_locations is None:
        file = Path(spec.origin or "")
        if file.suffix != ".py" or not file.is_file():
            raise IngestError(f"{top} has no Python source (it is {spec.origin})", where=locator)
        return Source(top, locator, file.parent, version, "", (file.name,))
    folder = Path(next(iter(spec.submodule_search_locations)))
    for part in parts:
        folder = folder / part
    dotted = ".".join([top, *parts])
    if folder.is_dir():
        return Source(dotted, locator, folder, version, dotted)
    if folder.with_suffix(".py").is_file():
        return Source(dotted, locator, folder.parent, version, dotted.rpartition(".")[0], (folder.name + ".py",))
    raise IngestError(f"{top} is installed, but has no {'/'.join(parts)}", where=str(folder), hint=f"kgagent ingest pkg:{top} reads all of it")


def find_top(name: str) -> importlib.machinery.ModuleSpec | None:
    """Only a top-level name: looking for `a.b` would import a."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is not None and spec.origin in ("built-in", "frozen"):
        return None
    return spec


def version_of(top: str) -> str:
    """The version of the distribution that brings a package; '' where none says."""
    import importlib.metadata

    try:
        return importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:
        owners = importlib.metadata.packages_distributions().get(top, [])
        return importlib.metadata.version(owners[0]) if owners else ""


def installed_distribution(name: str, top: str, locator: str) -> Source:
    """A distribution whose import names differ from its own, such as pkg:google-tunix."""
    import importlib.metadata

    try:
        distribution = importlib.metadata.distribution(top)
    except importlib.metadata.PackageNotFoundError:
        raise UnknownThing(f"no installed package {top!r}", where=locator, hint=f"pip install {top}, or kgagent ingest pypi:{top}") from None
    tops = sorted({file.parts[0] for file in distribution.files or () if file.suffix == ".py" and ".." not in file.parts})
    tops = [each for each in tops if not each.endswith((".dist-info", ".data"))]
    root = Path(str(distribution.locate_file("")))
    if not tops:
        raise IngestError(f"{top} is installed, but holds no Python source", where=locator)
    return Source(top, locator, root, distribution.version, "", tuple(tops))


def module_name(source: Source, path: str, packages: set[str]) -> tuple[str, bool]:
    """(dotted module, whether it is a package) of a file; `packages` are the source's folders with an `__init__.py`.

    Without a known prefix the module starts at the outermost folder that is a package, as an import from there would.
    """
    parts = path.split("/")
    stem = parts.pop().removesuffix(".py").removesuffix(".pyi")
    is_package = stem == "__init__"
    if source.prefix is not None:
        names = [*source.prefix.split("."), *parts] if source.prefix else list(parts)
    else:
        first = next((i for i in range(len(parts)) if "/".join(parts[: i + 1]) in packages), len(parts))
        if "" in packages:
            names = [*outer_packages(source.root), *parts]
        else:
            names = parts[first:] if first < len(parts) else list(parts)
    if not is_package:
        names.append(stem)
    return ".".join(names) or source.name, is_package


def outer_packages(root: Path) -> list[str]:
    """The dotted path of a folder that is itself inside packages."""
    names = [root.name]
    parent = root.parent
    while (parent / "__init__.py").is_file() and parent != parent.parent:
        names.insert(0, parent.name)
        parent = parent.parent
    return names
