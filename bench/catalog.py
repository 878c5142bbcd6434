"""The directory of Pallas kernels, made by machine: pinned packages from PyPI into one graph, then into the wiki, beside an oracle's count.

usage: python bench/catalog.py [--workspace DIR] [--sources TOML] [--oracle SCRIPT] [--only NAME …] [--json-only]
A package that fails is reported and the rest goes on. All that could not be resolved stands in DIR/catalog.json.
The last line is JSON: {"bench": "catalog", "figures": …, "bars": …}; exit 1 when a launch the oracle finds was missed or a package failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kgagent.cli.output import table
from kgagent.errors import KgError
from kgagent.graph import Graph, open_graph
from kgagent.ingest import SourceRow, forget, ingest, list_sources
from kgagent.learn import connect
from kgagent.setup import initialise
from kgagent.wiki import render
from kgagent.wiki.directory_rows import NO_BODY, read_entries, source_days
from kgagent.wiki.directory_rows import Entry as Launch
from kgagent.workspace import find_workspace

HERE = Path(__file__).resolve().parent
ORACLE = HERE.parents[1] / "shared" / "gold" / "launch_oracle.py"
ORACLE_S = 600.0
SHOWN = 6  # unresolved launches printed a source and reason; catalog.json has all


@dataclass(frozen=True, slots=True)
class Pinned:
    """A line of the list: a version to read, or the reason why there is none."""

    name: str
    version: str
    absent: str

    @property
    def locator(self) -> str:
        return f"pypi:{self.name}=={self.version}"


@dataclass(slots=True)
class Entry:
    """What one package gave; `error` when it gave nothing, `oracle_note` when nobody counted."""

    name: str
    version: str
    error: str = ""
    files: int = 0
    kernels: int = 0
    test_kernels: int = 0
    oracle: int = -1
    oracle_note: str = ""
    missed: list[str] = field(default_factory=list)
    beyond_oracle: int = 0
    unresolved: dict[str, list[str]] = field(default_factory=dict)  # what → places
    families: int = 0
    tunables: int = 0  # launches that have some
    tested: int = 0  # launches outside tests that a test reaches
    copies: int = 0
    day: str = ""
    calls_unresolved_frac: float = 0.0
    seconds: float = 0.0

    def count(self, what: str) -> int:
        return len(self.unresolved.get(what, ()))


# What a launch may lack. A body that its caller gives is not there to be resolved; it is counted apart, not left out.
LACKS: dict[str, Callable[[Launch], bool]] = {
    "body: given by the caller": lambda row: row.no_body == NO_BODY["parameter"],
    "body: several candidates": lambda row: row.no_body.startswith("one of"),
    "body": lambda row: row.no_body in (NO_BODY["lambda"], NO_BODY[""]),
    "backend": lambda row: row.backend == "unresolved",
    "wrapper": lambda row: not row.wrapper,
}
SHOWN_LACKS = ("body", "body: given by the caller", "body: several candidates", "backend", "wrapper")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workspace", type=Path, default=HERE.parent / "catalog-workspace")
    parser.add_argument("--sources", type=Path, default=HERE / "catalog_sources.toml")
    parser.add_argument("--oracle", type=Path, default=ORACLE)
    parser.add_argument("--only", nargs="*", default=[], help="these packages of the list only")
    parser.add_argument("--json-only", action="store_true")
    options = parser.parse_args()
    pins = [pin for pin in read_pins(options.sources) if not options.only or pin.name in options.only]
    entries, wiki = catalogue(options.workspace, pins, options.oracle)
    (options.workspace / "catalog.json").write_text(json.dumps([asdict(entry) for entry in entries], indent=1) + "\n")
    figures, bars = figures_of(entries) | wiki, bars_of(entries)
    if not options.json_only:
        show(entries, figures, options.workspace)
    print(json.dumps({"bench": "catalog", "figures": figures, "bars": bars}))
    return 0 if all(bar["ok"] for bar in bars.values()) else 1


def read_pins(path: Path) -> list[Pinned]:
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["source"]
    return [Pinned(row["name"], row.get("version", ""), row.get("absent", "")) for row in rows]


def catalogue(root: Path, pins: list[Pinned], oracle: Path) -> tuple[list[Entry], dict[str, float]]:
    """Every package in turn, then the links across them, then the pages; what stands already is not read again."""
    initialise(root)
    entries = []
    with open_graph(find_workspace(explicit=root), write=True) as graph:
        forget_other_versions(graph, pins)
        for pin in pins:
            entries.append(read_package(graph, pin))
        started = time.perf_counter()
        connect(graph, lambda step, done, total: say(step))
        link_s = time.perf_counter() - started
        started = time.perf_counter()
        say("writing the wiki")
        report = render(graph)
        wiki_s = time.perf_counter() - started
        rows, launches, days = {row.locator: row for row in list_sources(graph)}, read_entries(graph), source_days(graph)
        for entry, pin in zip(entries, pins, strict=True):
            if not entry.error:
                entry.day = days[f"src:{rows[pin.locator].name}"]
                measure(entry, rows[pin.locator], launches, oracle)
    return entries, {
        "link_s": round(link_s, 1), "wiki_s": round(wiki_s, 1), "wiki_written": len(report.written), "wiki_unchanged": report.unchanged,
        "database_mb": round(sum(p.stat().st_size for p in root.glob("graph.db*")) / 1e6, 1),
    }  # fmt: skip


def forget_other_versions(graph: Graph, pins: list[Pinned]) -> None:
    """A workspace that is used again may hold what the list named before; two versions would count everything twice."""
    wanted = {pin.name: pin.locator for pin in pins}
    for row in list_sources(graph):
        name = row.locator.removeprefix("pypi:").partition("==")[0]
        if row.locator.startswith("pypi:") and wanted.get(name, row.locator) != row.locator:
            say(f"forgetting {row.locator}")
            forget(graph, row.name)


def read_package(graph: Graph, pin: Pinned) -> Entry:
    entry = Entry(pin.name, pin.version, pin.absent)
    if pin.absent:
        return entry
    say(f"reading {pin.locator}")
    started = time.perf_counter()
    try:
        ingest(graph, [pin.locator])
    except KgError as error:
        entry.error = str(error).splitlines()[0]
    entry.seconds = round(time.perf_counter() - started, 1)
    return entry


def measure(entry: Entry, source: SourceRow, launches: tuple[Launch, ...], oracle: Path) -> None:
    """Counts of one source as it stands in the graph, whoever put it there."""
    prefix = f"file:{source.name}/"
    mine = [(row.file.removeprefix(prefix), row) for row in launches if row.source == f"src:{source.name}"]
    entry.files, entry.kernels, entry.test_kernels = source.files, len(mine), sum(row.in_test for _, row in mine)
    entry.families = len({row.family.slug for _, row in mine})
    entry.calls_unresolved_frac = round(source.unresolved_frac, 4)
    entry.tunables = sum(bool(row.tunables) for _, row in mine)
    entry.tested = sum(bool(row.tests) for _, row in mine if not row.in_test)
    entry.copies = sum(bool(row.origins) for _, row in mine)
    entry.unresolved = {what: [f"{path}:{row.line} {row.body_text or row.name}" for path, row in mine if lacks(row)] for what, lacks in LACKS.items()}
    sites = oracle_sites(oracle, Path(source.root), entry)
    if sites is not None:
        found = {(path, row.line) for path, row in mine}
        entry.oracle = len(sites)
        entry.missed = [f"{path}:{line}" for path, line in sorted(sites - found)]
        entry.beyond_oracle = len(found - sites)


def oracle_sites(script: Path, tree: Path, entry: Entry) -> set[tuple[str, int]] | None:
    """(path, line) of every launch the oracle sees in a tree; None, with the reason noted, where it can't run."""
    if not script.is_file():
        entry.oracle_note = f"{script.name} is not there"
        return None
    with tempfile.TemporaryDirectory(prefix="kgagent-oracle-") as folder:
        out = Path(folder) / "out.json"
        try:
            done = subprocess.run([sys.executable, "-W", "ignore", str(script), str(tree), str(out)], capture_output=True, text=True, timeout=ORACLE_S)
        except subprocess.TimeoutExpired:
            entry.oracle_note = f"it took more than {ORACLE_S:.0f} s"
            return None
        if done.returncode or not out.is_file():
            entry.oracle_note = f"it failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
            return None
        sites = [(Path(site["file"]).relative_to(tree), site["line"]) for site in json.loads(out.read_text())["sites"]]
    return {(path.as_posix(), line) for path, line in sites if not path.parts[0].endswith((".dist-info", ".data"))}


def figures_of(entries: list[Entry]) -> dict[str, object]:
    read = [entry for entry in entries if not entry.error]
    per_source = {
        entry.name: {
            "version": entry.version, "error": entry.error, "files": entry.files, "kernels": entry.kernels, "in_tests": entry.test_kernels,
            "oracle": entry.oracle, "oracle_note": entry.oracle_note, "missed": len(entry.missed), "beyond_oracle": entry.beyond_oracle,
            "unresolved": {what: len(places) for what, places in entry.unresolved.items()}, "tuned": entry.tunables,
            "tested": entry.tested, "copies": entry.copies, "families": entry.families, "dated": entry.day,
            "calls_unresolved_frac": entry.calls_unresolved_frac, "seconds": entry.seconds,
        }
        for entry in entries
    }  # fmt: skip
    totals = {"kernels": sum(e.kernels for e in read), "oracle": sum(max(e.oracle, 0) for e in read), "missed": sum(len(e.missed) for e in read)}
    return {"sources": per_source, **totals, "failed": len(entries) - len(read), "ingest_s": round(sum(e.seconds for e in entries), 1)}


def bars_of(entries: list[Entry]) -> dict[str, dict[str, object]]:
    bars: dict[str, dict[str, object]] = {}
    for entry in entries:
        if entry.oracle >= 0:
            bars[f"{entry.name}.oracle_launches_found"] = {"value": entry.oracle - len(entry.missed), "limit": entry.oracle, "ok": not entry.missed}
    failed = [entry.name for entry in entries if entry.error and entry.version]  # one that has no version is known not to be there
    bars["packages_failed"] = {"value": len(failed), "limit": 0, "ok": not failed}
    return bars


def show(entries: list[Entry], figures: dict[str, object], workspace: Path) -> None:
    head = (
        "source", "version", "dated", "files", "launches", "in tests", "oracle", "missed", "more", "no body", "given", "candidates", "no backend",
        "no wrapper", "tuned", "tested", "copies", "calls unres.", "took",
    )  # fmt: skip
    rows = [
        (e.name, e.version, e.day or "not told", e.files, e.kernels, e.test_kernels, e.oracle if e.oracle >= 0 else "-",
         len(e.missed) if e.oracle >= 0 else "-", e.beyond_oracle if e.oracle >= 0 else "-", *(share(e, what) for what in SHOWN_LACKS),
         e.tunables, e.tested, e.copies, f"{100 * e.calls_unresolved_frac:.1f}%", f"{e.seconds:.1f} s")
        for e in entries if not e.error
    ]  # fmt: skip
    print(table(head, rows))
    for entry in entries:
        if entry.error:
            print(f"\n{entry.name} {entry.version}: not read: {entry.error}")
        if entry.oracle_note:
            print(f"\n{entry.name}: no oracle count: {entry.oracle_note}")
        for what, places in [("missed, though the oracle finds it", entry.missed), *((f"no {what}", places) for what, places in entry.unresolved.items())]:
            if places:
                rest = f" (all in {workspace.name}/catalog.json)" if len(places) > SHOWN else ""
                print(f"\n{entry.name}: {len(places)} {what}{rest}\n" + "\n".join(f"  {place[:150]}" for place in places[:SHOWN]))
    print(
        f"\n{figures['kernels']} launches; linked in {figures['link_s']} s, wiki in {figures['wiki_s']} s ({figures['wiki_written']} pages written, "
        f"{figures['wiki_unchanged']} unchanged), database {figures['database_mb']} MB\nread {workspace / 'wiki' / 'kernel-directory.md'}\n"
    )


def share(entry: Entry, what: str) -> str:
    count = entry.count(what)
    return f"{count} ({100 * count / entry.kernels:.0f}%)" if count and entry.kernels else str(count)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
