"""Add a profile to a workspace: its bytes and HLO into raw/, its operations into the graph; and file it again in a rebuilt graph.

The manifest is written last: a profile that isn't in raw/profiles was not added, whatever a crash left in raw/objects.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kgagent.errors import EvidenceError, StorageError, UnknownThing, UsageError
from kgagent.evidence.dumps import AddedDump, add_dump, read_dump, restore_dumps
from kgagent.evidence.hlo import Module, parse_hlo
from kgagent.evidence.hlo_proto import modules_beside, modules_in_trace
from kgagent.evidence.kernels import kernel_calls
from kgagent.evidence.mosaic import KernelBody, body_of
from kgagent.evidence.profile import Profile
from kgagent.evidence.record import Recorded
from kgagent.evidence.record_run import record_profile
from kgagent.evidence.weigh import Weighed, weigh_profile
from kgagent.evidence.xplane import read_profile, trace_files
from kgagent.graph.store import Graph
from kgagent.objects import canonical_json
from kgagent.workspace import write_atomic

_NAME = re.compile(r"[A-Za-z0-9][\w.\-]{0,80}$")
FOLDER = "profiles"


@dataclass(frozen=True, slots=True)
class Added:
    """A profile as it stands in the workspace now."""

    id: str
    recorded: Recorded
    profile: Profile
    weighed: Weighed
    modules: tuple[str, ...]  # HLO found for it
    missing_hlo: tuple[str, ...]  # modules that ran, whose HLO is neither in the trace nor given
    dumps: tuple[AddedDump, ...] = ()


def profile_id(run: str) -> str:
    """The node of an added profile."""
    return f"profile:{run}"


def add_profile(
    graph: Graph,
    path: Path,
    *,
    run: str,
    lane: str | None = None,
    hlo: Sequence[Path] = (),
    label: str = "measured",
    dumps: Sequence[Path] = (),
    vmem_limit: Callable[[str], int | None] = lambda run: None,
) -> Added:
    """Read a trace (file or log folder, several hosts), join it to its HLO, keep both in raw/, record it as `profile:RUN`.

    A trace may have lost its HLO: `hlo` are texts of the executables, and win over the trace's own. `dumps` are folders of what the
    compiler dumped of the program; all of it is read before anything is kept, so that one bad part leaves nothing behind.
    """
    if not _NAME.match(run):
        raise UsageError(f"{run!r} can't name a profile", hint="letters, digits, dots, dashes and underscores")
    if lane is not None:
        graph.need(f"lane:{lane}")
    files = trace_files(path)
    profile = read_profile(path)
    texts = _texts(files, hlo)
    manifest: dict[str, Any] = {"run": run, "lane": lane, "label": label, "path": str(path)}
    with graph.transaction():
        added = _record(graph, manifest, profile, texts)
        for folder in dumps:
            read_dump(graph, added.id, folder)
        manifest["traces"] = [{"host": file.name.removesuffix(".xplane.pb"), "sha": graph.objects.put(file.read_bytes())} for file in files]
        manifest["hlo"] = [{"module": name, "sha": graph.objects.put(text.encode())} for name, text in texts]
        kept = tuple(add_dump(graph, added.id, folder, vmem_limit_bytes=vmem_limit(added.id)) for folder in dumps)
        target = graph.workspace.raw / FOLDER
        try:
            target.mkdir(parents=True, exist_ok=True)
            write_atomic(target / f"{run}.json", canonical_json(manifest).encode())
        except OSError as error:
            raise StorageError(f"can't keep the profile: {error.strerror or error}", where=str(target), hint="free disk space, then add it again") from error
    return replace(added, dumps=kept)


def _texts(files: Iterable[Path], given: Sequence[Path]) -> list[tuple[str, str]]:
    """(module, text) from what was given, the traces, and what stands beside them; equal ones once."""
    found: dict[tuple[str, str], None] = {}
    for path in given:
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise EvidenceError(f"HLO text can't be read: {error.strerror or error}", where=str(path), hint="give the *.txt of the executable") from error
        name = parse_hlo(raw, where=str(path)).name
        found[name, raw.decode()] = None
    for file in files:
        for name, text in (*modules_in_trace(file.read_bytes(), where=str(file)), *modules_beside(file.parent)):
            found[name, text] = None
    return list(found)


def _record(graph: Graph, manifest: dict[str, Any], profile: Profile, texts: Iterable[tuple[str, str]]) -> Added:
    ran = {op.module for op in profile.ops()}
    modules: dict[str, list[Module]] = defaultdict(list)
    for name, text in texts:
        if name in ran:  # a trace holds every module of its process, most of which never ran in it
            modules[name].append(parse_hlo(text))
    weighed = weigh_profile(profile, modules)
    missing = tuple(sorted(ran - set(modules)))
    data = {"missing_hlo": list(missing), "hlo_modules": sorted(modules)}
    recorded = record_profile(
        graph, profile_id(manifest["run"]), profile, weighed, lane=manifest["lane"], label=manifest["label"], data=data, bodies=_bodies(modules)
    )
    return Added(profile_id(manifest["run"]), recorded, profile, weighed, tuple(sorted(modules)), missing)


def _bodies(modules: dict[str, list[Module]]) -> dict[tuple[str, str], KernelBody]:
    """The kernels that the modules launch, by module and instruction."""
    calls = ((name, call.instruction) for name, texts in modules.items() for module in texts for call in kernel_calls(module))
    return {(name, instruction.name): body for name, instruction in calls if (body := body_of(instruction)) is not None}


@dataclass(frozen=True, slots=True)
class Stored:
    """A profile kept in raw/, read again: for views that need more than the graph holds."""

    run: str
    manifest: dict[str, Any]
    profile: Profile
    texts: tuple[tuple[str, str], ...]  # module, HLO text

    def modules(self) -> dict[str, Module]:
        """The modules that ran, parsed; the first text where one was compiled twice."""
        ran = {op.module for op in self.profile.ops()}
        found: dict[str, Module] = {}
        for name, text in self.texts:
            if name in ran and name not in found:
                found[name] = parse_hlo(text)
        return found

    def weighed(self) -> Weighed:
        """Operations with measured self time and their lines."""
        ran = {op.module for op in self.profile.ops()}
        modules: dict[str, list[Module]] = defaultdict(list)
        for name, text in self.texts:
            if name in ran:
                modules[name].append(parse_hlo(text))
        return weigh_profile(self.profile, modules)


def stored_runs(graph: Graph) -> tuple[str, ...]:
    """Names of the profiles kept in raw/."""
    return tuple(sorted(path.stem for path in (graph.workspace.raw / FOLDER).glob("*.json")))


def stored_profile(graph: Graph, run: str) -> Stored:
    """One kept profile; `UnknownThing` names those there are."""
    path = graph.workspace.raw / FOLDER / f"{run}.json"
    if not path.is_file():
        known = ", ".join(stored_runs(graph))
        raise UnknownThing(f"no profile {run!r}", hint=f"there are: {known}" if known else "kgagent profile add PATH --run NAME")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        traces, texts = manifest["traces"], manifest["hlo"]
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise StorageError(f"a profile's manifest is damaged: {error}", where=str(path), hint="add the profile again") from error
    with unpacked_traces(graph, traces) as folder:
        profile = read_profile(folder)
    named = replace(profile, path=manifest["path"])
    return Stored(run, manifest, named, tuple((text["module"], graph.objects.get(text["sha"]).decode()) for text in texts))


@contextmanager
def unpacked_traces(graph: Graph, traces: Sequence[dict[str, str]]) -> Iterator[Path]:
    """The kept traces as files in a folder of their own, for readers that want paths."""
    with tempfile.TemporaryDirectory(prefix="kgagent-profile-") as name:
        for trace in traces:
            (Path(name) / f"{trace['host']}.xplane.pb").write_bytes(graph.objects.get(trace["sha"]))
        yield Path(name)


def restore_profiles(graph: Graph) -> tuple[str, ...]:
    """Record every profile of raw/profiles again, and every dump of raw/dumps, as for a rebuilt graph; returns the profiles' ids."""
    out = []
    for run in stored_runs(graph):
        kept = stored_profile(graph, run)
        manifest = kept.manifest
        if manifest["lane"] is not None and graph.node(f"lane:{manifest['lane']}") is None:
            manifest["lane"] = None  # the lane's folder is gone; its profile is still evidence
        out.append(_record(graph, manifest, kept.profile, kept.texts).id)
    restore_dumps(graph)  # of compiles too, which stand in the graph by now
    return tuple(out)
