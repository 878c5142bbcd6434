"""Compile an exported program for a TPU topology with no TPU, in a process that may die.

Why a subprocess: libtpu aborts its process on some inputs, reads its flags once, and prints to stderr.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kgagent.compiler.dumps import bound_dump, dump_flags
from kgagent.compiler.messages import flag_refusal, refusal
from kgagent.compiler.records import BLIND_SPOT, Compiled, CompilerStatus, Memory, Refusal
from kgagent.compiler.status import INSTALL, need_compiler
from kgagent.compiler.target import known_topologies
from kgagent.errors import CompileError, EvidenceError, StorageError, Unavailable, UsageError
from kgagent.evidence.hlo import parse_hlo
from kgagent.evidence.kernels import kernel_calls
from kgagent.graph.records import plain
from kgagent.objects import canonical_json, sha256_hex
from kgagent.process import Finished, run_limited
from kgagent.workspace import write_atomic

CACHE_FORMAT = 3
_TOPOLOGY = re.compile(r"[\w ]+[:=]\d+(?:x\d+)*(?:_\w+)?$")
LOG_KEPT = 16_384  # characters of noise kept with a result
_DROPPED_ENV = ("LIBTPU_INIT_ARGS", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR", "JAX_PLATFORMS", "JAX_PLATFORM_NAME", "PJRT_DEVICE")


def aot_compile(
    exported: bytes,
    topology: str,
    *,
    flags: Mapping[str, str] | None = None,
    wall_s: float = 300,
    memory_mb: int | None = None,
    cache: Path | None = None,
    dump: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Compiled:
    """Compile a `jax.export` serialisation made for `tpu`. What the compiler refuses comes back as `blocked` with its reason.

    `dump` is a folder for the final LLO of every kernel (read it with `evidence.llo`); a compile with a dump is never taken from the cache.

    Raised: `Unavailable` (no libtpu, or one that doesn't fit jax), `UsageError` (topology, device count), `CompileError` (not an exported program).
    """
    if not _TOPOLOGY.match(topology):  # libtpu takes an empty name for a default of its own
        raise UsageError(f"not a topology: {topology!r}", hint=f"for example {', '.join(known_topologies())}")
    status = need_compiler()
    wanted = tuple(sorted((flags or {}).items()))
    sha = sha256_hex(exported)
    entry = _cache_entry(cache, sha, topology, wanted, status)
    known = _from_cache(entry) if dump is None else None
    if known is not None:
        return known
    if progress:
        progress(f"compiling for {topology}")
    with tempfile.TemporaryDirectory(prefix="kgagent-aot-") as name:
        folder = Path(name)
        try:
            (folder / "exported.bin").write_bytes(exported)
            (folder / "request.json").write_text(json.dumps({"topology": topology}))
        except OSError as error:
            raise StorageError(
                f"can't write what is to be compiled: {error.strerror or error}", where=name, hint="free space in the temporary folder"
            ) from error
        finished = run_limited(
            [sys.executable, "-m", "kgagent.compiler.worker", name],
            cwd=folder, env=_environment(folder, wanted, dump), wall_s=wall_s, memory_mb=memory_mb, output_kb=8192,
        )  # fmt: skip
        if dump is not None:
            bound_dump(dump)
        compiled = _judge(folder, finished, topology, wanted, sha, status)
    if entry is not None and (compiled.error is None or compiled.error.kind not in ("timeout", "memory", "aborted")):
        _to_cache(entry, compiled)  # what depended on this machine's limits is asked again
    if progress:
        progress(f"{compiled.status} after {compiled.wall_s:.1f} s")
    return compiled


def _environment(folder: Path, flags: tuple[tuple[str, str], ...], dump: Path | None) -> dict[str, str]:
    """The caller's environment, its own flags replaced by ours: libtpu reads them once a process, and knows more there than per compile."""
    given = [f"--{name.removeprefix('--')}={value}" for name, value in flags]
    env = {name: value for name, value in os.environ.items() if name not in _DROPPED_ENV}
    root = str(Path(__file__).resolve().parents[2])
    return {
        **env,
        "PYTHONPATH": os.pathsep.join(part for part in (root, env.get("PYTHONPATH", "")) if part),
        "JAX_PLATFORMS": "cpu",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # otherwise a second process aborts on libtpu's lock file
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_LOG_DIR": str(folder),
        "TPU_MIN_LOG_LEVEL": "2",
        "LIBTPU_INIT_ARGS": " ".join([*given, *([dump_flags(dump)] if dump is not None else [])]),
    }


def _judge(folder: Path, finished: Finished, topology: str, flags: tuple[tuple[str, str], ...], sha: str, status: CompilerStatus) -> Compiled:
    """The worker's files and exit as a result, or as an error with its next step."""
    stage = _text(folder / "stage") or "start"
    answer = _answer(folder / "result.json")
    log = finished.stderr[-LOG_KEPT:]
    if answer is not None and answer["status"] == "stopped":
        raise _stopped(answer["kind"], answer["message"], topology)
    result = Compiled(
        "blocked", topology, "", 0, flags, None, "", None, None, None, "", (), (), 0.0, finished.wall_s, status.jax or "", status.libtpu or "", sha, log
    )  # fmt: skip
    if answer is None:
        refused = flag_refusal(finished.stderr)
        if refused is not None:
            return replace(result, error=refused)
        if stage in ("start", "import", "topology") and not finished.killed_by:
            raise _broken(finished, stage)
        if stage == "read" and not finished.killed_by:
            raise _stopped("unreadable", _last_line(finished.stderr), topology)
        return replace(result, error=_died(finished, stage))
    result = replace(result, device_kind=answer["device_kind"], devices=answer["devices"], compile_s=answer["compile_s"])
    if answer["status"] == "blocked":
        frames = tuple(answer["frames"])
        error = replace(refusal(answer["message"], stage=answer["stage"]), frames=frames, line=frames[0] if frames else "")
        return replace(result, error=error)
    text = _text(folder / "hlo.txt")
    kernels = _kernels(text)
    note = f"{BLIND_SPOT}: {', '.join(dict.fromkeys(kernels))}" if kernels else ""
    memory = Memory(**answer["memory"]) if answer["memory"] else None
    return replace(
        result, status="ok", hlo_text=text, memory=memory, kernels=kernels, cost_note=note, constants=tuple(sorted(answer["constants"].items())),
        flops=answer["cost"]["flops"], bytes_accessed=answer["cost"]["bytes_accessed"],
    )  # fmt: skip


def _stopped(kind: str, message: str, topology: str) -> CompileError | UsageError | Unavailable:
    first = message.strip().splitlines()[0] if message.strip() else "no message"
    if kind == "topology":
        if "libtpu" in message and "INVALID_ARGUMENT" not in message:
            return Unavailable(f"libtpu doesn't load: {first}", hint=f"{INSTALL} installs the libtpu that fits jax")
        return UsageError(f"unknown topology {topology!r}: {first.removeprefix('INVALID_ARGUMENT: ')}", hint=f"for example {', '.join(known_topologies())}")
    if kind == "devices":
        return UsageError(first, where=topology, hint="choose a topology with at least as many devices")
    if kind == "platform":
        return CompileError(first, hint='export it with platforms=["tpu"]')
    return CompileError(f"not a readable jax.export serialisation: {first}", hint="export it again with this jax")


def _broken(finished: Finished, stage: str) -> Unavailable:
    """The compiler itself didn't start: jax, libtpu or the machine, never the program."""
    last = _last_line(finished.stderr)
    return Unavailable(f"the TPU compiler doesn't start ({stage}): {last[:300]}", hint=f"{INSTALL} installs versions of jax and libtpu that fit each other")


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no message").strip()


def _died(finished: Finished, stage: str) -> Refusal:
    """The worker was killed, or aborted, while it had the program in its hands."""
    if finished.killed_by == "timeout":
        return Refusal("timeout", f"not compiled within {finished.wall_s:.0f} s", "", stage, hint="allow more time, or make the program smaller")
    if finished.killed_by == "memory":
        return Refusal("memory", "the compiler needed more memory on this machine than it was allowed", "", stage, hint="allow more memory")
    fatal = [line for line in finished.stderr.splitlines() if line[:1] == "F" or "Check failed" in line or "Error" in line]
    message = "\n".join(fatal[-5:]) or finished.stderr[-2000:]
    return Refusal(
        "aborted",
        f"the compiler process died (exit {finished.returncode}) in {stage}",
        message,
        stage,
        hint="simplify the program; report it to the compiler's authors",
    )


def _kernels(text: str) -> tuple[str, ...]:
    try:
        return tuple(call.kernel for call in kernel_calls(parse_hlo(text)))
    except EvidenceError:  # the compiler's own text: a dialect we can't read loses the names, not the result
        return ()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _answer(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):  # killed before or while it wrote
        return None
    return found if isinstance(found, dict) else None


def _cache_entry(cache: Path | None, sha: str, topology: str, flags: tuple[tuple[str, str], ...], status: CompilerStatus) -> Path | None:
    if cache is None:
        return None
    key = sha256_hex(canonical_json([CACHE_FORMAT, sha, topology, [list(pair) for pair in flags], status.jax, status.jaxlib, status.libtpu]))
    return cache / key[:2] / f"{key[2:]}.json.z"


def _from_cache(entry: Path | None) -> Compiled | None:
    """A stored result; a damaged one counts as absent and is made again."""
    if entry is None:
        return None
    try:
        found = json.loads(zlib.decompress(entry.read_bytes()))
    except (FileNotFoundError, zlib.error, json.JSONDecodeError):
        return None
    error = Refusal(**{**found["error"], "frames": tuple(found["error"]["frames"])}) if found["error"] else None
    memory = Memory(**found["memory"]) if found["memory"] else None
    pairs = {key: tuple((name, value) for name, value in found[key]) for key in ("flags", "constants")}
    return Compiled(**{**found, "error": error, "memory": memory, **pairs, "kernels": tuple(found["kernels"]), "cached": True})


def _to_cache(entry: Path, compiled: Compiled) -> None:
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(entry, zlib.compress(json.dumps(plain(compiled)).encode(), 6))
    except OSError as error:
        raise StorageError(f"can't keep a compilation: {error.strerror or error}", where=str(entry), hint="free disk space, then run it again") from error
