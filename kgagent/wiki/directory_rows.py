"""What the kernel directory says of each kernel, read for all kernels at once."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kgagent.graph import Graph
from kgagent.wiki.families import Family, family_of, load_families

TEST_PATH = re.compile(r"(?:^|/)(?:tests?/|test_[^/]*\.py\Z|[^/]*_test\.py\Z|conftest\.py\Z)")
SURE = "('exact', 'alias', 're-export', 'inferred')"
TEST_HOPS = 4  # from a kernel's wrapper up to a test: op, backend class, public function, test
MAX_REACHED = 400  # a wrapper with more callers than that is infrastructure; its tests are everybody's
FETCHED = ("pypi:", "git:")  # sources whose files carry the times of their archive
# Reproducible builds give every file one of these days; a rebuilt graph knows no times at all.
NO_DAY = frozenset({"1970-01-01", "1980-01-01", "2016-01-01", "2020-02-02"})

Place = tuple[str, int]  # file id, line
# How a launch names a body that is no symbol. What a parameter or a lambda stands for is the caller's, not ours to guess.
NO_BODY = {"parameter": "given by its caller", "lambda": "a lambda", "": "not followed"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One launch, and all that is known around it."""

    id: str
    name: str
    family: Family
    source: str
    file: str
    line: int
    backend: str
    backend_how: str
    body: str  # '' where it is unknown
    body_text: str
    no_body: str  # why the body is unknown: NO_BODY's values, or 'one of 2'
    wrapper: str
    tunables: tuple[str, ...]
    callers: tuple[str, ...]  # what calls the wrapper or hands it on
    maybe_callers: tuple[str, ...]  # what may: the wrapper is one of several it could mean
    tests: tuple[Place, ...]
    origins: tuple[tuple[str, float], ...]  # kernel it is a copy of, likeness
    day: str  # of the file, '' where the package doesn't tell
    in_test: bool


@dataclass(frozen=True, slots=True)
class Listed:
    """A kernel that only somebody's list tells of."""

    id: str
    name: str
    repo: str
    path: str
    backend: str
    claim: str
    place: Place


def read_entries(graph: Graph) -> tuple[Entry, ...]:
    """Every launch, by source, path and line."""
    tunables, concepts, callers, origins = _tunables(graph), _concepts(graph), _callers(graph), _origins(graph)
    starts = _starts(graph)
    walk = _Climb(graph)
    families = load_families()
    found = []
    for key, id_, name, source, file, path, line, mtime, locator, at, backend, how, body, body_name, text, wrapper, wrapper_name, data in graph.rows(
        """SELECT n.key, n.id, n.name, s.id, lf.id, f.path, k.launch_line, f.mtime_ns, src.locator, src.ingested_at, k.backend, k.backend_how,
                  b.id, b.name, k.body_text, w.id, w.name, n.data
           FROM kernel k JOIN node n ON n.key = k.key JOIN file f ON f.key = k.launch_file JOIN node lf ON lf.key = f.key
           JOIN source src ON src.key = f.source JOIN node s ON s.key = src.key
           LEFT JOIN node b ON b.key = k.body LEFT JOIN node w ON w.key = k.wrapper ORDER BY s.id, f.path, k.launch_line, n.id"""
    ):
        more = json.loads(data) if data else {}
        names = [name, body_name or "", wrapper_name or "", *path.removesuffix(".py").split("/")[1:]]  # the first is the package: its name isn't a function
        sure, maybe = (tuple(c for c, known in callers[key].items() if known is wanted) for wanted in (True, False))
        found.append(
            Entry(
                id_, name, family_of(names, concepts[key], families), source, file, line, backend, how, body or "", text, "" if body else _no_body(more),
                wrapper or "", tuple(tunables[key]), sure, maybe, walk.tests(starts[key]), tuple(origins[key]), _day(mtime, locator, at),
                bool(more.get("test")),
            )
        )  # fmt: skip
    return tuple(found)


def read_listed(graph: Graph) -> tuple[Listed, ...]:
    """Kernels of catalogues whose source isn't in the graph."""
    rows = graph.rows(
        """SELECT n.id, n.name, n.data, n.doc, f.id, n.line_start FROM node n JOIN node f ON f.key = n.file
           WHERE n.kind = 'kernel' AND NOT EXISTS (SELECT 1 FROM kernel k WHERE k.key = n.key) ORDER BY n.name, n.id"""
    )
    found = []
    for id_, name, text, claim, file, line in rows:
        data = json.loads(text) if text else {}
        found.append(Listed(id_, name, str(data.get("repo", "")), str(data.get("path", "")), str(data.get("backend", "unresolved")), claim, (file, line)))
    return tuple(found)


def source_days(graph: Graph) -> dict[str, str]:
    """The newest day any file of a source tells of; '' where none does."""
    days: dict[str, str] = {}
    for source, locator, at, mtime in graph.rows(
        """SELECT s.id, src.locator, src.ingested_at, max(f.mtime_ns) FROM source src JOIN node s ON s.key = src.key
           LEFT JOIN file f ON f.source = src.key GROUP BY src.key"""
    ):
        days[source] = _day(mtime or 0, locator, at)
    return days


def _no_body(data: dict[str, Any]) -> str:
    if data.get("bodies"):
        return f"one of {len(data['bodies'])}"
    via = data.get("via") or ()
    return next((reason for form, reason in NO_BODY.items() if form in via), NO_BODY[""])


def _day(mtime_ns: int, locator: str, ingested_at: str) -> str:
    """The day a fetched file was packed; times from the day it was read are those of unpacking and tell nothing."""
    if not locator.startswith(FETCHED) or mtime_ns <= 0:
        return ""
    packed = datetime.fromtimestamp(mtime_ns / 1e9, UTC)
    day = packed.date().isoformat()
    return "" if day in NO_DAY or packed > datetime.fromisoformat(ingested_at) - timedelta(days=1) else day


def _tunables(graph: Graph) -> dict[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    for kernel, name, default in graph.rows(
        """SELECT e.dst, n.name, coalesce(json_extract(n.data, '$.default'), '') FROM edge e JOIN node n ON n.key = e.src
           LEFT JOIN node f ON f.key = n.file WHERE e.type = 'tunes' ORDER BY e.dst, f.id, n.line_start, n.id"""
    ):
        text = f"{name}={default}" if default not in ("", "None") else str(name)
        if text not in found[kernel]:
            found[kernel].append(text)
    return found


def _concepts(graph: Graph) -> dict[int, dict[str, int]]:
    """Lines that mention a concept, per kernel, in its body and wrapper."""
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for kernel, concept, count in graph.rows(
        """SELECT t.dst, c.id, count(DISTINCT m.key) FROM edge t JOIN edge m ON m.src = t.src AND m.type = 'mentions' JOIN node c ON c.key = m.dst
           WHERE t.type IN ('wraps', 'implements') GROUP BY t.dst, c.id"""
    ):
        found[kernel][concept] = count
    return found


def _callers(graph: Graph) -> dict[int, dict[str, bool]]:
    """Who calls a kernel's wrapper or hands it on, and whether that is sure; tests left out."""
    found: dict[int, dict[str, bool]] = defaultdict(dict)
    for kernel, caller, path, sure in graph.rows(
        f"""SELECT w.dst, s.id, coalesce(f.path, ''), max(c.how IN {SURE}) FROM edge w
            JOIN edge c ON c.dst = w.src AND c.type IN ('calls', 'uses') AND (c.how IN {SURE} OR c.how = 'candidate')
            JOIN node s ON s.key = c.src AND s.kind = 'symbol' LEFT JOIN file f ON f.key = s.file
            WHERE w.type = 'wraps' AND NOT EXISTS (SELECT 1 FROM edge own WHERE own.src = s.key AND own.type IN ('wraps', 'implements') AND own.dst = w.dst)
            GROUP BY w.dst, s.id ORDER BY w.dst, s.id"""
    ):
        if not TEST_PATH.search(path):
            found[kernel][caller] = bool(sure)
    return found


def _origins(graph: Graph) -> dict[int, list[tuple[str, float]]]:
    found: dict[int, list[tuple[str, float]]] = defaultdict(list)
    for kernel, origin, likeness in graph.rows(
        """SELECT e.src, n.id, coalesce(json_extract(e.data, '$.likeness'), 0) FROM edge e JOIN node n ON n.key = e.dst
           WHERE e.type = 'vendored_from' ORDER BY e.src, 3 DESC, n.id"""
    ):
        found[kernel].append((origin, likeness))
    return found


def _starts(graph: Graph) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for kernel, symbol in graph.rows("SELECT dst, src FROM edge WHERE type IN ('wraps', 'implements') AND how <> 'candidate' ORDER BY dst, src"):
        found[kernel].append(symbol)
    return found


class _Climb:
    """From symbols up to the tests that reach them; who refers to a symbol is read once."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._known: dict[int, tuple[list[int], list[Place]]] = {}

    def tests(self, starts: Iterable[int]) -> tuple[Place, ...]:
        """Where test functions stand that reach one of the symbols in a few sure steps; the near ones only where too much does."""
        seen, edge = set(starts), set(starts)
        found: set[Place] = set()
        for _ in range(TEST_HOPS):
            above: set[int] = set()
            for symbol in edge:
                others, tests = self._referrers(symbol)
                found.update(tests)
                above.update(others)
            edge = above - seen
            seen |= edge
            if len(seen) > MAX_REACHED:
                break
        return tuple(sorted(found))

    def _referrers(self, symbol: int) -> tuple[list[int], list[Place]]:
        """(symbols to climb on from, places of tests) that call or use a symbol."""
        if symbol not in self._known:
            others: list[int] = []
            tests: list[Place] = []
            for key, file, path, line in self.graph.rows(
                f"""SELECT DISTINCT s.key, n.id, f.path, s.line_start FROM edge e JOIN node s ON s.key = e.src JOIN file f ON f.key = s.file
                    JOIN node n ON n.key = f.key WHERE e.dst = ? AND e.type IN ('calls', 'uses') AND e.how IN {SURE}""",
                symbol,
            ):
                if TEST_PATH.search(path):
                    tests.append((file, line or 0))
                else:
                    others.append(key)
            self._known[symbol] = (others, tests)
        return self._known[symbol]
