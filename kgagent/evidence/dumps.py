"""Add a dump of the compiler's schedules to a run: its files compressed into raw/, what they say onto the run's kernels.

A dump is tied to kernels by instruction name and result shape, so that one of another program is refused and never half believed.
The manifest is written last, within the graph's transaction: what isn't in raw/dumps was not added.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgagent.errors import EvidenceError, StorageError, UsageError
from kgagent.evidence.digest import record_program, record_schedule
from kgagent.evidence.llo import DumpFiles, Schedule, dump_files, read_schedule
from kgagent.evidence.mosaic_dump import MosaicFiles, MosaicProgram, mosaic_files, read_program
from kgagent.evidence.shapes import leaves
from kgagent.graph.records import Node
from kgagent.graph.store import Graph
from kgagent.objects import canonical_json
from kgagent.workspace import write_atomic

FOLDER = "dumps"
LIMIT_BYTES = 2**30
_RESULT = re.compile(r"inlined_call_operand\.\w+ \[shape: ([^,\s]+\[[^\]]*\])[^\]]*?kind: output")
_HEAD_CHARS = 200_000  # operands are named in the first bundles
_MOSAIC = "-mosaic-dump-"
_LLO_READ = ("final_bundles", "static-per-bundle-utilization", "original", "registers-and-allocations")
_HINT = "give the folder of --xla_jf_dump_to or --xla_mosaic_dump_to"


@dataclass(frozen=True, slots=True)
class DumpedKernel:
    """What a dump told of one launch; either part may be absent."""

    op: str
    schedule: Schedule | None
    program: MosaicProgram | None


@dataclass(frozen=True, slots=True)
class AddedDump:
    """A dump as it stands in the workspace now."""

    run: str
    kernels: tuple[DumpedKernel, ...]
    without: tuple[str, ...]  # the run's kernels that the dump doesn't hold
    others: int  # instructions and programs of the dump that are no kernel of the run
    files: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class FoundDump:
    """What a dump says of a run's kernels, before any of it is kept."""

    kernels: tuple[DumpedKernel, ...]
    without: tuple[str, ...]
    others: int
    paths: tuple[Path, ...]
    file_bytes: int


def add_dump(graph: Graph, run: str, folder: Path, *, limit_bytes: int = LIMIT_BYTES, vmem_limit_bytes: int | None = None, move: bool = False) -> AddedDump:
    """Read an LLO or Mosaic dump folder (or one that holds both), keep what was read, tie it to the kernels of a recorded run.

    With `move` the files that were kept are deleted from the folder, once they are safe in raw/.
    """
    found = read_dump(graph, run, folder, limit_bytes=limit_bytes)
    files = [{"name": f"{path.parent.name}/{path.name}", "sha": graph.objects.put(path.read_bytes())} for path in found.paths]
    with graph.transaction():
        _record(graph, found, vmem_limit_bytes)
        target = _manifest(graph, run)
        try:
            manifest = {"run": run, "vmem_limit_bytes": vmem_limit_bytes, "path": str(folder), "files": [*files, *_of_the_other_kind(target, files)]}
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, canonical_json(manifest).encode())
        except OSError as error:
            raise StorageError(f"can't keep the dump: {error.strerror or error}", where=str(target), hint="free disk space, then add it again") from error
    if move:
        for path in found.paths:
            path.unlink(missing_ok=True)
    return AddedDump(run, found.kernels, found.without, found.others, len(files), found.file_bytes)


def _of_the_other_kind(manifest: Path, files: list[dict[str, str]]) -> list[dict[str, str]]:
    """Files of an earlier dump that this one doesn't replace: LLO and Mosaic dumps may come one by one."""
    if not manifest.is_file():
        return []
    kinds = {_MOSAIC in file["name"] for file in files}
    return [file for file in _load(manifest)["files"] if (_MOSAIC in file["name"]) not in kinds]


def _load(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(file["name"] + file["sha"] + manifest["run"], str) for file in manifest["files"]):
            raise TypeError("names and hashes must be text")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"a dump's manifest is damaged: {error}", where=str(path), hint="delete it and add the dump again") from error
    return manifest


def restore_dumps(graph: Graph) -> tuple[str, ...]:
    """Tie every kept dump to its run again, as for a rebuilt graph; a run that is gone keeps its dump for when it is back."""
    out = []
    for path in sorted((graph.workspace.raw / FOLDER).glob("*.json")):
        manifest = _load(path)
        run, files = manifest["run"], [(file["name"], file["sha"]) for file in manifest["files"]]
        if graph.node(run) is None:
            continue
        with tempfile.TemporaryDirectory(prefix="kgagent-dump-") as name:
            for relative, sha in files:
                target = Path(name) / Path(relative).parent.name / Path(relative).name
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(graph.objects.get(sha))
            with graph.transaction():
                _record(graph, read_dump(graph, run, Path(name)), manifest.get("vmem_limit_bytes"))
        out.append(run)
    return tuple(out)


def _manifest(graph: Graph, run: str) -> Path:
    return graph.workspace.raw / FOLDER / f"{re.sub(r'[^A-Za-z0-9._-]', '-', run)}.json"


def _record(graph: Graph, found: FoundDump, vmem_limit_bytes: int | None) -> None:
    for kernel in found.kernels:
        if kernel.schedule is not None:
            record_schedule(graph, kernel.op, kernel.schedule, vmem_limit_bytes=vmem_limit_bytes)
        if kernel.program is not None:
            record_program(graph, kernel.op, kernel.program)


def read_dump(graph: Graph, run: str, folder: Path, *, limit_bytes: int = LIMIT_BYTES) -> FoundDump:
    """Everything the dump says of the run's kernels; raises before anything is stored."""
    node = graph.need(run)
    if node.kind != "profile":
        raise UsageError(f"{run} is a {node.kind}, not a profile or compile", hint="kgagent profile list")
    launches = {op.name: op for edge in graph.edges(src=run, type="has_op") if (op := graph.need(edge.dst)).data.get("kernel_name")}
    if not launches:
        raise UsageError(f"{run} launches no Pallas kernel, so no dump can be tied to it", hint="a trace that lost its HLO needs --hlo FILE first")
    scheduled, programs = _dumped(folder)
    schedules, paths = _schedules(scheduled, launches, folder)
    told, more_paths = _programs(programs, launches)
    if not schedules and not told:
        has = ", ".join([*(files.instruction for files in scheduled), *(files.name for files in programs)][:5])
        raise EvidenceError(f"a dump of another program: it has {has}; {run} launches {', '.join(launches)}", where=str(folder), hint=_HINT)
    kernels = tuple(DumpedKernel(op.id, schedules.get(name), told.get(name)) for name, op in launches.items() if name in schedules or name in told)
    without = tuple(name for name in launches if name not in schedules and name not in told)
    others = len(scheduled) + len(programs) - len(schedules) - len({id(program) for program in told.values()})
    files = (*paths, *more_paths)
    total = sum(path.stat().st_size for path in files)
    if total > limit_bytes:
        what = f"the dump's files are {total / 2**20:,.0f} MiB, more than the limit of {limit_bytes / 2**20:,.0f} MiB; nothing was stored"
        raise StorageError(what, where=str(folder), hint="dump fewer passes: --xla_jf_dump_llo_pass_label_regex='.*final.*'")
    return FoundDump(kernels, without, others, files, total)


def _dumped(folder: Path) -> tuple[tuple[DumpFiles, ...], tuple[MosaicFiles, ...]]:
    """Both kinds of dump in a folder and the folders right below it."""
    if not folder.is_dir():
        raise EvidenceError("no such dump folder", where=str(folder), hint=_HINT)
    scheduled: list[DumpFiles] = []
    programs: list[MosaicFiles] = []
    for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        if any(path.name.endswith("final_bundles.txt") for path in place.iterdir()):
            scheduled += dump_files(place)
        programs += mosaic_files(place)
    if not scheduled and not programs:
        raise EvidenceError("no LLO or Mosaic dump there", where=str(folder), hint="dump with --xla_jf_dump_to=DIR --xla_jf_dump_llo_text=true")
    return tuple(scheduled), tuple(programs)


def _schedules(scheduled: Iterable[DumpFiles], launches: Mapping[str, Node], folder: Path) -> tuple[dict[str, Schedule], list[Path]]:
    """Schedules by launch, and the files they were read from."""
    out: dict[str, Schedule] = {}
    paths: list[Path] = []
    for files in scheduled:
        op = launches.get(files.instruction)
        if op is None:
            continue
        _check_shape(files, op, folder)
        out[files.instruction] = read_schedule(files)
        paths += [path for label, path in files.passes if label.endswith(_LLO_READ)]
    return out, paths


def _check_shape(files: DumpFiles, op: Node, folder: Path) -> None:
    """Kernels of two programs often share a name; what they return tells them apart."""
    try:
        with open(files.bundles, encoding="utf-8", errors="replace") as text:
            dumped = sorted({_array(shape) for shape in _RESULT.findall(text.read(_HEAD_CHARS))})
    except OSError as error:
        raise EvidenceError(f"a dump file can't be read: {error.strerror or error}", where=str(files.bundles)) from error
    ran = sorted({_array(f"{leaf.dtype}[{','.join(map(str, leaf.dims))}]") for leaf in leaves(str(op.data.get("shape", "")))})
    if dumped and ran and not set(dumped) & set(ran):
        what = f"a dump of another program: its {files.instruction} returns {', '.join(dumped)}, the run's {', '.join(ran)}"
        raise EvidenceError(what, where=str(folder), hint="give the dump of the compile that ran")


def _array(shape: str) -> str:
    """`f32[2048,2048]` of a printed shape."""
    found = leaves(shape)
    return f"{found[0].dtype}[{','.join(map(str, found[0].dims))}]" if found else shape


def _programs(programs: Iterable[MosaicFiles], launches: Mapping[str, Node]) -> tuple[dict[str, MosaicProgram], list[Path]]:
    """Mosaic programs by launch: by the kernel's name, or by the function that its HLO holds."""
    out: dict[str, MosaicProgram] = {}
    paths: list[Path] = []
    for files in programs:
        program = read_program(files)
        mine = [name for name, op in launches.items() if _is_program_of(program, op.data)]
        for name in mine:
            out[name] = program
        if mine:
            paths += [path for label, path in files.passes if label == program.read_from]
    return out, paths


def _is_program_of(program: MosaicProgram, op: Mapping[str, Any]) -> bool:
    body = op.get("kernel") or {}
    if body.get("grid") and program.grid and tuple(body["grid"]) != program.grid:
        return False  # the same function launched over another grid
    return program.function == body.get("body") or op["kernel_name"] in (program.name, program.function)
