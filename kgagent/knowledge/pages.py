"""Concept pages: markdown with flat properties, read strictly, one clear error a page.

A page is knowledge a person edits, so what can't be understood is an error with its line, never skipped in silence.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgagent.errors import ConfigError
from kgagent.frontmatter import Page, parse_page
from kgagent.knowledge.detectors import parse_detector
from kgagent.knowledge.facts import parse_fact
from kgagent.knowledge.records import RELATIONS, Concept, Detector, Fact, Lever, Loaded, Problem, Relation

_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_RELATION = re.compile(r"(?P<src>[\w:/=-]+)\s*->\s*(?P<dst>[\w:/=-]+)\s*:\s*(?P<scope>\S.*)", re.DOTALL)
_LEVER = re.compile(r"`(?P<slug>[^`]+)`\s*[:.]?\s*(?P<text>\S.*)", re.DOTALL)
_WIKILINK = re.compile(r"\[\[([^\]|#]+)(?:[#|][^\]]*)?\]\]")
_TEXTS = ("id", "kind", "title")
_OPTIONAL = ("summary",)
_LISTS = ("aliases", "tags", "levers", *RELATIONS, "detectors")
_SECTIONS = ("definition", "mechanism", "when it applies", "when it doesn't", "levers", "facts")


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    number: int


def shipped_concepts() -> Path:
    """The folder of the pages that come with kgagent: the checkout's first, because an editable install has no other."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package.parent / "wiki" / "concepts", package / "_concepts"):
        if folder.is_dir() and any(folder.glob("*.md")):
            return folder
    raise ConfigError("this installation has no concept pages", where=str(package), hint="reinstall kgagent")


def load_concepts(folder: Path) -> tuple[Concept, ...]:
    """All pages of a folder, by slug; the first broken one is a `ConfigError`."""
    loaded = read_concepts(folder)
    if loaded.problems:
        first, more = loaded.problems[0], len(loaded.problems) - 1
        raise ConfigError(first.what + (f" (and {more} more problems)" if more else ""), where=first.where, hint=first.hint)
    return loaded.concepts


def read_concepts(folder: Path) -> Loaded:
    """All pages that can be read and one problem for each that can't; what two pages both claim goes to the first."""
    concepts: list[Concept] = []
    problems: list[Problem] = []
    for path in page_files(folder):
        try:
            concepts.append(read_page(path))
        except ConfigError as error:
            problems.append(Problem.of(error))
    concepts = _unique_levers(concepts, problems)
    return Loaded(tuple(_known_ends(concepts, problems)), tuple(problems))


def page_files(folder: Path) -> list[Path]:
    """The concept pages of a folder; a folder may be named like a page and is none."""
    return sorted(path for path in folder.glob("*.md") if path.is_file())


def read_page(path: Path) -> Concept:
    """One page; `ConfigError` says what is wrong with it, on which line, and how to put it right."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError("the page isn't UTF-8 text", where=str(path), hint="save it as UTF-8") from error
    except OSError as error:
        raise ConfigError(f"the page can't be read: {error.strerror or error}", where=str(path)) from error
    page = parse_page(text, where=str(path))
    marks = _item_lines(text)
    meta = _checked_meta(page, path)
    slug = meta["id"].removeprefix("concept:")
    if not meta["id"].startswith("concept:") or not _SLUG.fullmatch(slug) or slug != path.stem:
        raise ConfigError(f"id is {meta['id']!r}", where=f"{path}:{marks.get('id', [1])[0]}", hint=f'write id: "concept:{path.stem}", the name of the file')
    sections = _sections(page)
    if not _joined(sections.get("definition", [])):
        raise ConfigError("the page defines nothing", where=f"{path}:{page.body_line}", hint="add ## Definition and a paragraph below it")
    detectors = _detectors(meta["detectors"], marks.get("detectors", []), str(path))
    levers = _levers(meta["levers"], marks.get("levers", []), sections.get("levers", []), str(path))
    return Concept(
        slug=slug, title=meta["title"], summary=meta["summary"], path=path, lines=len(text.splitlines()),
        aliases=tuple(meta["aliases"]), tags=tuple(meta["tags"]),
        definition=_joined(sections["definition"]), mechanism=_joined(sections.get("mechanism", [])),
        applies=_joined(sections.get("when it applies", [])), not_applies=_joined(sections.get("when it doesn't", [])),
        detectors=detectors, levers=levers,
        relations=tuple(_relations(meta, marks, slug, str(path))),
        facts=tuple(_facts(sections.get("facts", []), str(path))),
        links=tuple(_links(sections)),
    )  # fmt: skip


def _checked_meta(page: Page, path: Path) -> dict[str, Any]:
    """The properties we know, with the right types; near misses of their names are errors, others are left alone."""
    if not page.meta:
        raise ConfigError("the page has no properties", where=str(path), hint="begin it with ---, then id, kind, title, detectors and ---")
    known = (*_TEXTS, *_OPTIONAL, *_LISTS)
    for name in page.meta:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        if name not in known and near:
            raise ConfigError(f"unknown property {name!r}", where=str(path), hint=f"did you mean {near[0]}?")
    meta: dict[str, Any] = {}
    for name in _TEXTS:
        value = page.meta.get(name)
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"the page has no {name}", where=str(path), hint=f'add {name}: "…" to its properties')
        meta[name] = value.strip()
    for name in _OPTIONAL:
        meta[name] = str(page.meta.get(name, "")).strip()
    if meta["kind"] != "concept":
        raise ConfigError(f"kind is {meta['kind']!r}", where=str(path), hint='pages in concepts/ have kind: "concept"')
    for name in _LISTS:
        value = page.meta.get(name, [])
        if value == "":
            value = []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{name} isn't a list of texts", where=str(path), hint=f'write {name}:, then a line   - "…" for each, in double quotes')
        meta[name] = [item.strip() for item in value]
    return meta


def _item_lines(text: str) -> dict[str, list[int]]:
    """Line numbers of each property's items (or of its value), in order."""
    import yaml

    lines = text.splitlines(keepends=True)
    end = next((i for i, line in enumerate(lines[1:], 1) if line.rstrip("\r\n") == "---"), 0)
    node = yaml.compose("".join(lines[1:end]), Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)) if end else None
    marks: dict[str, list[int]] = {}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            items = value.value if isinstance(value, yaml.SequenceNode) else [value]
            marks[str(key.value)] = [item.start_mark.line + 2 for item in items]
    return marks


def _sections(page: Page) -> dict[str, list[_Line]]:
    """Known second-level sections; an HTML comment (a generated region's mark) ends one."""
    sections: dict[str, list[_Line]] = {}
    current: list[_Line] | None = None
    for number, line in enumerate(page.body.splitlines(), page.body_line):
        if line.startswith("## "):
            name = line[3:].strip().lower().replace("’", "'")
            current = sections.setdefault(name, []) if name in _SECTIONS else None
        elif line.startswith(("# ", "<!--")):
            current = None
        elif current is not None:
            current.append(_Line(line, number))
    return sections


def _joined(lines: Iterable[_Line]) -> str:
    return "\n".join(line.text for line in lines).strip()


def _bullets(lines: Sequence[_Line]) -> list[_Line]:
    """Top-level list items, each with its continuation lines joined by a space."""
    items: list[_Line] = []
    open_item = False
    for line in lines:
        if line.text.startswith(("- ", "* ")):
            items.append(_Line(line.text[2:].strip(), line.number))
            open_item = True
        elif open_item and line.text.startswith("  ") and line.text.strip():
            items[-1] = _Line(f"{items[-1].text} {line.text.strip()}", items[-1].number)
        else:
            open_item = False
    return items


def _detectors(items: Sequence[str], marks: Sequence[int], where: str) -> tuple[Detector, ...]:
    found: dict[str, Detector] = {}
    for text, line in zip(items, marks, strict=True):
        detector = parse_detector(text, where=where, line=line)
        if detector.name in found:
            raise ConfigError(f"two detectors are named {detector.name!r}", where=f"{where}:{line}", hint="give each its own name")
        found[detector.name] = detector
    return tuple(found.values())


def _levers(names: Sequence[str], marks: Sequence[int], lines: Sequence[_Line], where: str) -> tuple[Lever, ...]:
    described: dict[str, Lever] = {}
    for item in _bullets(lines):
        found = _LEVER.fullmatch(item.text)
        if found is None:
            raise ConfigError(f"not a lever: {item.text[:60]!r}", where=f"{where}:{item.number}", hint="write - `lever-name`: what to do")
        described[found["slug"]] = Lever(found["slug"], found["text"], item.number)
    for name, line in zip(names, marks, strict=True):
        if not _SLUG.fullmatch(name):
            raise ConfigError(f"a lever can't be named {name!r}", where=f"{where}:{line}", hint="use lowercase words joined by -")
        if name not in described:
            raise ConfigError(f"lever {name!r} isn't described", where=f"{where}:{line}", hint=f"add - `{name}`: what to do, under ## Levers")
    extra = next((lever for slug, lever in described.items() if slug not in names), None)
    if extra:
        raise ConfigError(f"lever {extra.slug!r} isn't among the properties", where=f"{where}:{extra.line}", hint=f'add   - "{extra.slug}" to levers')
    return tuple(described[name] for name in names)


def _relations(meta: dict[str, Any], marks: dict[str, list[int]], slug: str, where: str) -> Iterable[Relation]:
    for type_ in RELATIONS:
        for text, line in zip(meta[type_], marks.get(type_, []), strict=True):
            found = _RELATION.fullmatch(text)
            if found is None:
                hint = 'write "lever -> other-lever: where this holds"; `this` stands for the page\'s concept'
                raise ConfigError(f"not a relation: {text!r}", where=f"{where}:{line}", hint=hint)
            ends = []
            for name in (found["src"], found["dst"]):
                if name == "this":
                    name = f"concept:{slug}"
                ends.append(name if name.startswith(("concept:", "lever:")) else f"lever:{name}")
            yield Relation(ends[0], type_, ends[1], " ".join(found["scope"].split()), line)


def _facts(lines: Sequence[_Line], where: str) -> Iterable[Fact]:
    for item in _bullets(lines):
        yield parse_fact(item.text, where=where, line=item.number)


def _links(sections: dict[str, list[_Line]]) -> Iterable[tuple[str, int]]:
    seen: set[str] = set()
    for lines in sections.values():
        for line in lines:
            for found in _WIKILINK.finditer(line.text):
                name = found[1].strip().rsplit("/", 1)[-1]
                if name not in seen:
                    seen.add(name)
                    yield name, line.number


def _unique_levers(concepts: list[Concept], problems: list[Problem]) -> list[Concept]:
    """A lever belongs to one page; a page that describes it again is left out."""
    owner: dict[str, str] = {}
    kept = []
    for concept in concepts:
        twice = next((lever for lever in concept.levers if lever.slug in owner), None)
        if twice:
            what = f"lever {twice.slug!r} is already described in {owner[twice.slug]}.md"
            problems.append(Problem(what, f"{concept.path}:{twice.line}", "keep one of the two, and name it in a relation instead"))
            continue
        owner.update({lever.slug: concept.slug for lever in concept.levers})
        kept.append(concept)
    return kept


def _known_ends(concepts: list[Concept], problems: list[Problem]) -> Iterable[Concept]:
    """Pages with the relations whose ends exist; the others become problems, since a page may be added later."""
    import dataclasses

    known = {concept.id for concept in concepts} | {lever.id for concept in concepts for lever in concept.levers}
    for concept in concepts:
        for relation in concept.relations:
            for end in (relation.src, relation.dst):
                if end not in known:
                    near = difflib.get_close_matches(end, sorted(known), n=1, cutoff=0.6)
                    hint = f"did you mean {near[0]}?" if near else "describe it on a page, or remove the line"
                    problems.append(Problem(f"no lever or concept {end.split(':', 1)[1]!r}", f"{concept.path}:{relation.line}", hint))
        held = tuple(relation for relation in concept.relations if relation.src in known and relation.dst in known)
        yield concept if len(held) == len(concept.relations) else dataclasses.replace(concept, relations=held)
