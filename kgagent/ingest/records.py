"""What ingest hands over to faces: frozen records, absolute paths, units in names."""

from __future__ import annotations

from dataclasses import dataclass

FETCHED = ("pypi", "git")  # schemes pinned when they were fetched: such a source is never stale


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was not read, or only in part, and why."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What one source's ingest did; counts are of the graph after it."""

    name: str
    locator: str
    root: str
    revision: str
    files: int
    parsed: int  # added or changed
    added: int
    changed: int
    unchanged: int
    moved: int
    deleted: int
    resolved_again: int  # unchanged files whose references now mean something else
    symbols: int
    edges: int
    kernels: int
    unresolved: int  # calls whose callee no scope explains
    bytes: int
    seconds: float
    skipped: int  # files passed over
    problems: tuple[Skipped, ...]  # what was passed over, or read only in part


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A source as `kgagent sources` shows it."""

    name: str
    locator: str
    root: str
    revision: str
    ingested_at: str
    age_days: float
    files: int
    skipped: int
    symbols: int
    kernels: int
    calls: int
    unresolved_frac: float  # of all calls
    stale: str  # '' when what is on disk is what was read


@dataclass(frozen=True, slots=True)
class Place:
    """Something in a file, with how it was resolved."""

    id: str
    file: str
    line: int
    how: str

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True, slots=True)
class Tunable:
    """A knob that tunes a kernel: a block-size field or parameter."""

    id: str
    name: str
    file: str
    line: int
    default: str
    how: str  # how sure it is that it tunes this kernel


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A Pallas kernel: launch, body, wrapper, backend and tunables."""

    id: str
    name: str
    source: str
    file: str  # absolute path of the launch
    path: str  # the same, relative to its source
    line: int
    api: str
    backend: str
    backend_how: str
    body: Place | None
    body_how: str
    body_text: str
    bodies: tuple[str, ...]  # ids of all candidates where one could not be chosen
    wrapper: Place | None
    tunables: tuple[Tunable, ...]
    grid: str
    form: str  # call, decorator, partial decorator, call of call, wrapper
    is_test: bool


@dataclass(frozen=True, slots=True)
class FlagUse:
    """Where a flag is set or named; `value` is '' where it is only named."""

    symbol: str
    file: str
    line: int
    value: str


@dataclass(frozen=True, slots=True)
class FlagRow:
    """A flag, and what the installed libtpu says of it."""

    id: str
    name: str
    status: str  # known, unknown, moved, unchecked
    moved_to: str
    how: str  # how the status is known
    uses: tuple[FlagUse, ...]


@dataclass(frozen=True, slots=True)
class Caller:
    """A symbol from which a kernel is reached, `hop` relations away."""

    place: Place
    hop: int
    is_public: bool
    is_test: bool


@dataclass(frozen=True, slots=True)
class KernelCallers:
    """Everything that reaches a kernel, nearest first; `cut` says that there is more."""

    kernel: str
    callers: tuple[Caller, ...]
    public: tuple[Caller, ...]
    tests: tuple[Caller, ...]
    cut: bool
