"""The vault on disk: which page holds which id, which names are taken, and writes that never lose a person's byte.

A page is found by the `id` in its frontmatter, wherever it was moved and however it was renamed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kgagent.errors import ConfigError, StorageError
from kgagent.frontmatter import Page, parse_page
from kgagent.wiki import properties
from kgagent.wiki.properties import Properties
from kgagent.wiki.regions import Damaged, find_regions, outside, write_region
from kgagent.wiki.text import short_hash
from kgagent.workspace import write_atomic

_ID = re.compile(r"""^["']?id["']?[ \t]*:[ \t]*(.+?)[ \t]*$""", re.MULTILINE)
_CLOSED = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)
HEAD_CHARS = 16_384
WRITERS = 8
BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Conflict:
    """A page or region left as it is, why, and what to do about it."""

    path: str
    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A page as the graph wants it: properties are ours to keep current, seeds are given once."""

    id: str
    folder: str
    name: str
    own: Properties
    seeds: Properties
    content: str
    region: str = "page"


@dataclass(slots=True)
class Vault:
    """One scan of the folder, and what was done since."""

    root: Path
    by_id: dict[str, Path] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    unchanged: int = 0
    _pending: list[tuple[Path, bytes]] = field(default_factory=list)

    @classmethod
    def scan(cls, root: Path) -> Vault:
        """Read every page's head; two pages with one id are a conflict, and the first by path keeps it."""
        vault = cls(root)
        for path in _pages(root):
            vault.taken.add(path.stem.lower())
            id_ = _id_of(path)
            if not id_:
                continue
            if id_ in vault.by_id:
                first = vault.short(vault.by_id[id_])
                vault.conflicts.append(Conflict(vault.short(path), f"has the same id as {first}: {id_}", "delete the id from the copy"))
            else:
                vault.by_id[id_] = path
        return vault

    def short(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def place(self, id_: str, folder: str, name: str) -> Path:
        """Where a node's page is, or will be: a free name, told apart by a hash of the id when it is taken."""
        if id_ not in self.by_id:
            if name in self.taken:
                name = f"{name}-{short_hash(id_)}"
            self.taken.add(name)
            self.by_id[id_] = self.root / folder / f"{name}.md"
        return self.by_id[id_]

    def write(self, draft: Draft) -> None:
        """Make or refresh a generated page; nothing is written when nothing differs."""
        path = self.place(draft.id, draft.folder, draft.name)
        region = write_region(draft.region, draft.content)
        text = self._read(path)
        if text is None:
            return
        if not text:
            self._put(path, "", properties.new_head(draft.own, draft.seeds) + region + "\n")
            return
        mark, text = (BOM, text[1:]) if text.startswith(BOM) else ("", text)
        page = self._parse(path, text)
        if page is None:
            return
        after = self._with_properties(path, text, page, draft.own)
        after = self._with_region(path, after, draft.region, draft.content)
        self._put(path, mark + text, mark + after)

    def append(self, path: Path, name: str, content: str, *, only_refresh: bool) -> None:
        """Refresh a region in a page a person wrote, or add it at the end; the rest is not read as anything but text."""
        text = self._read(path)
        if text:
            self._put(path, text, self._with_region(path, text, name, content, only_refresh=only_refresh))

    def remove(self, id_: str) -> None:
        """Delete a page whose node is gone, if nothing in it is a person's; else say that it stays."""
        path = self.by_id[id_]
        text = self._read(path)
        if not text:
            return
        kept = Conflict(self.short(path), f"{id_} is no longer in the graph", "somebody wrote in this page, so it stays; delete it if it isn't needed")
        page = self._parse(path, text.removeprefix(BOM))
        if page is None:
            return
        try:
            regions = find_regions(page.body)
        except Damaged:
            self.conflicts.append(kept)
            return
        if regions and properties.only_ours(page) and all(region.intact for region in regions) and not outside(page.body, regions).strip():
            try:
                path.unlink()
            except OSError as error:
                raise StorageError(f"can't remove a page: {error.strerror or error}", where=str(path)) from error
            self.removed.append(self.short(path))
            del self.by_id[id_]
        else:
            self.conflicts.append(kept)

    def _read(self, path: Path) -> str | None:
        """The page's text, '' when there is none, None when it can't be touched."""
        try:
            return path.read_bytes().decode("utf-8")
        except FileNotFoundError:
            return ""
        except UnicodeDecodeError:
            self.conflicts.append(Conflict(self.short(path), "isn't UTF-8 text", "save it as UTF-8; until then it is left alone"))
        except OSError as error:
            self.conflicts.append(Conflict(self.short(path), f"can't be read: {error.strerror or error}", "make it readable; until then it is left alone"))
        return None

    def _parse(self, path: Path, text: str) -> Page | None:
        try:
            return parse_page(text, where=str(path))
        except ConfigError as error:
            self.conflicts.append(Conflict(self.short(path), error.what, error.hint or "repair the frontmatter; until then the page is left alone"))
            return None

    def _with_properties(self, path: Path, text: str, page: Page, own: Properties) -> str:
        """Our properties brought up to date, unless a person edited one of them."""
        if properties.own_intact(page) or properties.unclaimed(page, own):
            return properties.splice(text, page, own)
        hint = f"delete {properties.HASH} and our properties but id to have them written anew; yours stay until then"
        self.conflicts.append(Conflict(self.short(path), "a generated property was edited", hint))
        return text

    def _with_region(self, path: Path, text: str, name: str, content: str, *, only_refresh: bool = False) -> str:
        """The region replaced where it is ours, added at the end where it is missing, left alone where it was edited."""
        try:
            regions = find_regions(text)
        except Damaged as error:
            hint = "restore or delete both markers of the region; until then the page's regions are left alone"
            self.conflicts.append(Conflict(self.short(path), str(error), hint))
            return text
        found = next((region for region in regions if region.name == name), None)
        if found is None:
            if only_refresh:
                return text
            gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
            return f"{text}{gap}{write_region(name, content)}\n"
        if found.content.replace("\r\n", "\n") == content and found.intact:
            return text
        if not found.intact and found.content.replace("\r\n", "\n") != content:
            hint = "delete the region with its markers to have it written anew; move what you wrote outside the markers to keep it"
            self.conflicts.append(Conflict(self.short(path), f"the generated region {name} was edited; it stays as you left it", hint))
            return text
        region = write_region(name, content)
        if "\r\n" in text[found.start : found.end]:
            region = region.replace("\n", "\r\n")
        return text[: found.start] + region + text[found.end :]

    def _put(self, path: Path, before: str, after: str) -> None:
        """Write if it differs, atomically."""
        if before == after:
            self.unchanged += 1
            return
        self.put_file(path, after)

    def put_file(self, path: Path, text: str) -> None:
        """Have a file of the vault written by `flush`."""
        self._pending.append((path, text.encode()))

    def flush(self) -> None:
        """Write what is pending, each file atomically; in threads, because most of the time is waiting for the disk."""
        from concurrent.futures import ThreadPoolExecutor

        pending, self._pending = self._pending, []
        for folder in {path.parent for path, _ in pending}:
            _guarded(folder, partial(folder.mkdir, parents=True, exist_ok=True))
        with ThreadPoolExecutor(WRITERS) as pool:
            for path in pool.map(lambda page: _guarded(page[0], partial(write_atomic, *page)), pending):
                self.written.append(self.short(path))


def _guarded(path: Path, work: Callable[[], object]) -> Path:
    """Do it and return the path; the disk's refusal as ours."""
    try:
        work()
    except OSError as error:
        hint = "free some space or choose a vault you can write to, then run it again"
        raise StorageError(f"can't write a page: {error.strerror or error}", where=str(path), hint=hint) from error
    return path


def _pages(root: Path) -> Iterator[Path]:
    """Markdown pages in order of path, hidden folders left out."""
    for path in sorted(path for path in root.rglob("*.md") if path.is_file()):
        if not any(part.startswith(".") for part in path.relative_to(root).parts) and path.is_file():
            yield path


def _id_of(path: Path) -> str:
    """The `id` of a page's frontmatter, '' when it has none; read as text, so that a broken page keeps its identity."""
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as handle:
            head = handle.read(HEAD_CHARS).removeprefix(BOM)
    except OSError:
        return ""
    if not re.match(r"---[ \t]*\r?\n", head):
        return ""
    closed = _CLOSED.search(head, 4)
    found = _ID.search(head.replace("\r", ""), 0, closed.start() if closed else len(head))
    return _scalar(found.group(1)) if found else ""


def _scalar(text: str) -> str:
    """One YAML scalar as text; as it stands when it isn't one."""
    import yaml

    try:
        value = yaml.load(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    except yaml.YAMLError:
        return text.strip("\"'")
    return value if isinstance(value, str) else ""
