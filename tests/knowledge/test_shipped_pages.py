"""The pages that ship: complete, consistent, and every fact's source there to open."""

from __future__ import annotations

import ast
import csv
from functools import lru_cache
from pathlib import Path

import pytest

from kgagent.frontmatter import parse_page
from kgagent.knowledge import Concept, load_concepts, shipped_concepts
from kgagent.knowledge.records import Citation

from .packages import package_file

ROOT = Path(__file__).parents[2]
CONCEPTS = load_concepts(shipped_concepts())
IDS = {concept.id for concept in CONCEPTS}
by_slug = pytest.mark.parametrize("concept", CONCEPTS, ids=lambda concept: concept.slug)


def test_there_are_forty_and_no_name_twice() -> None:
    assert len(CONCEPTS) >= 40
    assert len(IDS) == len(CONCEPTS)
    titles = [concept.title.lower() for concept in CONCEPTS]
    aliases = [alias.lower() for concept in CONCEPTS for alias in concept.aliases]
    assert len(set(titles + aliases)) == len(titles + aliases)


def test_they_are_the_checkouts() -> None:
    assert shipped_concepts() == ROOT / "wiki" / "concepts"


@by_slug
def test_every_section_says_something(concept: Concept) -> None:
    for text in (concept.summary, concept.definition, concept.mechanism, concept.applies, concept.not_applies):
        assert len(text) > 40
    assert "\n" not in concept.summary and concept.summary.endswith(".")
    assert concept.aliases and concept.tags and concept.levers and len(concept.detectors) >= 3 and len(concept.facts) >= 3


@by_slug
def test_links_lead_to_pages(concept: Concept) -> None:
    assert {f"concept:{name}" for name, _ in concept.links} <= IDS


@by_slug
def test_properties_are_flat_for_obsidian(concept: Concept) -> None:
    """One type a property name in the whole vault: text, or a list of texts."""
    meta = parse_page(concept.path.read_text(encoding="utf-8")).meta
    texts = {"id", "kind", "title", "summary"}
    for name, value in meta.items():
        assert isinstance(value, str) if name in texts else isinstance(value, list) and all(isinstance(item, str) for item in value), name


def test_every_concept_is_tied_to_another_by_a_lever() -> None:
    lever_of = {lever.id: concept.id for concept in CONCEPTS for lever in concept.levers}
    tied = {lever_of.get(end, end) for concept in CONCEPTS for relation in concept.relations for end in (relation.src, relation.dst)}
    assert IDS - tied <= {"concept:tiled-layout", "concept:normalisation", "concept:roofline-and-mfu", "concept:ahead-of-time-compilation"}


def test_scan_over_layers_requires_a_tiled_attention_kernel() -> None:
    scan = next(concept for concept in CONCEPTS if concept.slug == "scan-over-layers")
    assert ("lever:scan-over-layers", "requires", "lever:fused-attention-kernel") in {(r.src, r.type, r.dst) for r in scan.relations}


CITATIONS = sorted({citation for concept in CONCEPTS for fact in concept.facts for citation in fact.citations}, key=lambda c: c.text)


@pytest.mark.parametrize("citation", [c for c in CITATIONS if c.kind in ("code", "here")], ids=lambda c: c.text.rsplit("/", 1)[-1])
def test_cited_code_is_there(citation: Citation) -> None:
    if citation.kind == "here":
        path = ROOT / citation.path
    else:
        found = package_file(citation.path)
        if isinstance(found, str):
            pytest.skip(found)
        path = found
    assert path.is_file(), f"{citation.text}: no such file"
    if citation.symbol:
        assert citation.symbol in _defined(path), f"{citation.text}: no such name"


@lru_cache
def _defined(path: Path) -> set[str]:
    """Dotted names of the functions and classes of a file."""
    names: set[str] = set()

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                names.add(f"{prefix}{child.name}")
                walk(child, f"{prefix}{child.name}.")
            else:
                walk(child, prefix)

    walk(ast.parse(path.read_bytes()), "")
    return names


def test_measured_values_stand_in_the_measurements() -> None:
    """A time cited from measurements.csv is one of its rows."""
    with open(ROOT / "kgagent/knowledge/data/measurements.csv", encoding="utf-8", newline="") as file:
        times = {float(row["median_ms"]) for row in csv.DictReader(file)}
    facts = [fact for concept in CONCEPTS for fact in concept.facts if fact.unit == "ms" and any(c.path.endswith("measurements.csv") for c in fact.citations)]
    assert len(facts) >= 5
    for fact in facts:
        assert fact.value in times, fact.text
