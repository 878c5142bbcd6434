"""The kernel directory: every Pallas kernel in the graph by function, with backend, source, tunables, callers, tests, origin and age."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kgagent.graph import Graph
from kgagent.wiki.directory_rows import NO_BODY, Entry, Listed, read_entries, read_listed, source_days
from kgagent.wiki.facts import Facts, more, page, place
from kgagent.wiki.families import Family, load_families
from kgagent.wiki.text import code, prose, table
from kgagent.wiki.vault import Draft

ID = "dir:kernels"
NAME = "kernel-directory"
FOLDER = "directory"
CELL = 3  # names in a cell before "and n more"; the kernel's own page has all
SHOWN = 200
HEAD = ["kernel", "backend", "source", "launch", "tunables", "called from", "tests", "copy of", "dated"]


@dataclass(frozen=True, slots=True)
class Directory:
    """What the directory's pages will say, known before any page links to them."""

    families: tuple[tuple[Family, tuple[Entry, ...]], ...]  # those that have kernels, in the order of families.toml
    entries: tuple[Entry, ...]
    listed: tuple[Listed, ...]
    days: dict[str, str]

    def pages(self) -> list[tuple[str, str, str]]:
        """(id, folder, name) of the index and of a page for each family; none while the graph has no kernels."""
        if not self.entries and not self.listed:
            return []
        return [(ID, "", NAME), *((family_id(family), FOLDER, f"{NAME}-{family.slug}") for family, _ in self.families)]

    def drafts(self, facts: Facts) -> list[Draft]:
        if not self.entries and not self.listed:
            return []
        return [index(facts, self), *(family_page(facts, family, members) for family, members in self.families)]


def read_directory(graph: Graph) -> Directory:
    entries = read_entries(graph)
    families: dict[Family, list[Entry]] = defaultdict(list)
    for entry in entries:
        families[entry.family].append(entry)
    ordered = tuple((family, tuple(families[family])) for family in load_families() if families[family])
    return Directory(ordered, entries, read_listed(graph), source_days(graph))


def family_id(family: Family) -> str:
    return f"dir:{family.slug}"


def index(facts: Facts, directory: Directory) -> Draft:
    """Families, then sources, then what could not be resolved and what is only listed somewhere."""
    entries = directory.entries
    tested = sum(entry.in_test for entry in entries)
    launches = "1 Pallas launch" if len(entries) - tested == 1 else f"{len(entries) - tested} Pallas launches"
    content = page(
        "# Kernel directory",
        f"{launches} by function, and {tested} in tests. A kernel stands in one family: the first whose words its names carry, "
        "else the one whose concepts its code mentions.",
        "## By function" if directory.families else "",
        table(["function", "launches", "backends", "sources", "copies", "in tests"], [family_row(facts, *family) for family in directory.families]),
        "## By source" if entries else "",
        by_source(facts, directory),
        unresolved(facts, entries),
        only_listed(directory.listed),
    )
    return Draft(ID, "", NAME, {"id": ID, "kind": "directory", "title": "Kernel directory", "kernels": len(entries)}, {"tags": ["kernel"]}, content)


def family_row(facts: Facts, family: Family, members: Sequence[Entry]) -> list[str]:
    own = [entry for entry in members if not entry.in_test]
    sources = Counter(entry.source for entry in own)
    return [
        facts.link(family_id(family), family.title), str(len(own)), backends(own),
        ", ".join(f"{facts.link(source, source.removeprefix('src:'))} {count}" for source, count in sorted(sources.items())),
        str(sum(bool(entry.origins) for entry in own) or ""), str(len(members) - len(own) or ""),
    ]  # fmt: skip


def backends(entries: Iterable[Entry]) -> str:
    counts = Counter(entry.backend for entry in entries)
    return ", ".join(f"{prose(backend.replace('_', ' '))} {count}" for backend, count in sorted(counts.items()))


def by_source(facts: Facts, directory: Directory) -> str:
    """How old each source is, how many kernels it has, and how many of them lack something."""
    revisions = dict(facts.rows("SELECT n.id, s.revision FROM source s JOIN node n ON n.key = s.key WHERE n.made_by = 'ingest'"))
    groups: dict[str, list[Entry]] = {source: [] for source in sorted(revisions)}
    for entry in directory.entries:
        groups.setdefault(entry.source, []).append(entry)
    rows = []
    for source, members in groups.items():
        given = sum(e.no_body == NO_BODY["parameter"] for e in members)
        lacking = [sum(not e.body for e in members) - given, given, sum(e.backend == "unresolved" for e in members), sum(not e.wrapper for e in members)]
        rows.append(
            [facts.link(source, source.removeprefix("src:")), code(revisions[source][:12]) if revisions.get(source) else "", directory.days.get(source, ""),
             str(len(members)), str(sum(entry.in_test for entry in members) or ""), *(_share(count, len(members)) for count in lacking)]
        )  # fmt: skip
    return table(["source", "revision", "dated", "launches", "in tests", "no body", "body given", "no backend", "no wrapper"], rows)


def _share(count: int, total: int) -> str:
    return f"{count} ({100 * count / total:.0f}%)" if count else ""


def unresolved(facts: Facts, entries: Sequence[Entry]) -> str:
    """Launches that lack a body, a backend or a wrapper, and why."""
    rows = []
    for entry in entries:
        lacks = []
        if not entry.body:
            lacks.append(f"body: {entry.no_body}")
        if entry.backend == "unresolved":
            lacks.append("backend: nothing it rests on names one")
        if not entry.wrapper:
            lacks.append("wrapper: launched at module level")
        if lacks:
            rows.append([facts.link(entry.id, entry.name), place(entry.file, entry.line), prose("; ".join(lacks)), code(entry.body_text[:80] or "?")])
    if not rows:
        return ""
    head = f"## Not resolved\n\n{len(rows)} of {len(entries)} launches lack something; nothing is guessed."
    return page(head, table(["launch", "where", "lacks", "what is launched"], rows[:SHOWN]), more(len(rows), SHOWN, code("kgagent kernels --json")))


def only_listed(listed: Sequence[Listed]) -> str:
    """What catalogues name and no ingested source holds."""
    rows = [
        [prose(each.name), prose(each.repo), code(each.path) if each.path else "", prose(each.backend.replace("_", " ")), prose(each.claim), place(*each.place)]
        for each in listed[:SHOWN]
    ]
    text = table(["kernel", "repository", "path", "backend", "said of it", "listed in"], rows)
    rest = more(len(listed), SHOWN, code("kgagent kernels --json"))
    return page("## Listed, not ingested", "Rows of kernel catalogues whose source isn't in the graph.", text, rest) if rows else ""


def family_page(facts: Facts, family: Family, members: Sequence[Entry]) -> Draft:
    """All launches of a family, those in tests apart."""
    own, tests = [e for e in members if not e.in_test], [e for e in members if e.in_test]
    concepts = [facts.link(concept) for concept in sorted(family.concepts) if concept in facts.pages]
    content = page(
        f"# {prose(family.title)}",
        f"Back to {facts.link(ID, 'the kernel directory')}." + (f" Concepts: {', '.join(concepts)}." if concepts else ""),
        table(HEAD, [row(facts, entry) for entry in own]),
        "## Launched in tests" if tests else "",
        table(HEAD, [row(facts, entry) for entry in tests]),
    )
    properties: dict[str, str | int | float | list[str]] = {
        "id": family_id(family), "kind": "directory", "title": f"Kernels: {family.title}", "kernels": len(members)
    }  # fmt: skip
    return Draft(family_id(family), FOLDER, f"{NAME}-{family.slug}", properties, {"tags": ["kernel"]}, content)


def row(facts: Facts, entry: Entry) -> list[str]:
    sure = "" if entry.backend_how == "exact" or entry.backend == "unresolved" else f" ({entry.backend_how})"
    callers = [*(code(near(entry, c)) for c in entry.callers), *(f"{code(near(entry, c))} (candidate)" for c in entry.maybe_callers)]
    tests = [place(file, line) for file, line in entry.tests]
    origins = [f"{facts.link(id_, id_.removeprefix('kernel:').partition('/')[0])} {100 * likeness:.0f}%" for id_, likeness in entry.origins]
    return [
        facts.link(entry.id, entry.name), prose(entry.backend.replace("_", " ") + sure), facts.link(entry.source, entry.source.removeprefix("src:")),
        place(entry.file, entry.line), cell([code(name) for name in entry.tunables], 6), cell(callers, CELL),
        cell(tests, 1), cell(origins, CELL), entry.day,
    ]  # fmt: skip


def near(entry: Entry, caller: str) -> str:
    """A caller's name, without the module where that is the kernel's own."""
    module = entry.id.removeprefix("kernel:").rpartition("/")[0].replace("/", ".")
    return caller.removeprefix("sym:").removeprefix(f"{module}.")


def cell(parts: Sequence[str], shown: int) -> str:
    """The first few, and how many there are beyond."""
    rest = f" and {len(parts) - shown} more" if len(parts) > shown else ""
    return ", ".join(parts[:shown]) + rest
