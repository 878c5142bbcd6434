"""The error tree: every failure says what happened, where, and what to do next, and carries an exit code.

Exit codes are an interface: 1 the thing asked about failed, 2 usage or configuration, 3 try again, 130 interrupted.
"""

from __future__ import annotations


class KgError(Exception):
    """A failure a person can act on; faces print it in one line and exit with its code."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        step = f"\n  next: {self.hint}" if self.hint else ""
        return f"{self.what}{place}{step}"


class UsageError(KgError):
    """The request itself is wrong: a bad argument, a bad name."""

    exit_code = 2


class ConfigError(UsageError):
    """A file a person wrote (lane.toml, kgagent.toml, a concept page) can't be used as it stands."""


class WorkspaceMissing(UsageError):
    """No workspace here or in any folder above."""


class UnknownThing(UsageError):
    """A node, lane, package or run nobody has heard of; the hint names the nearest."""


class Refused(KgError):
    """The database refused a row that would make a false claim."""


class IngestError(KgError):
    """A source yielded nothing, or can't be read."""


class CandidateError(KgError):
    """A candidate raised, hung, flooded, or returned what it must not."""


class CompileError(KgError):
    """The compiler said no; the message is its own."""


class EvidenceError(KgError):
    """A profile, dump or HLO text that can't be read."""


class StorageError(KgError):
    """The disk is full, read-only, or a file on it is damaged."""


class Busy(KgError):
    """Somebody else holds what is needed; the same call may work in a moment."""

    exit_code = 3


class Unavailable(KgError):
    """A part this machine lacks (jax, libtpu, a TPU, a key)."""

    exit_code = 2
