"""What a person gets wrong in a page: one error, with the line and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgagent.errors import ConfigError
from kgagent.knowledge import load_concepts, read_concepts
from kgagent.knowledge.pages import read_page

from .pages import PAGE, write_page

GOOD = PAGE.format(slug="good", meta="", levers="", facts="", link="good")

# replaced text, its replacement, part of the message, line (0: none), part of the hint
BROKEN = [
    ("---\nid", "id", "no properties", 0, "begin it with ---"),
    ('id: "concept:good"', 'id: "concept:other"', "id is 'concept:other'", 2, 'id: "concept:good"'),
    ('id: "concept:good"\n', "", "no id", 0, "add id"),
    ('kind: "concept"', 'kind: "kernel"', "kind is 'kernel'", 0, 'kind: "concept"'),
    ('title: "good title"', "title: good: title", "isn't YAML", 4, "quote"),
    ('tags:\n  - "test"', 'tags: "test"', "tags isn't a list", 0, "tags:"),
    ('tags:\n  - "test"', 'tags:\n  - a: "b"', "tags isn't a list", 0, "tags:"),
    ("tags:", 'detector:\n  - "source x: abc"\ntags:', "unknown property 'detector'", 0, "did you mean detectors?"),
    ("tags:", 'detectors:\n  - "sauce x: abc"\ntags:', "no detectors of kind 'sauce'", 9, "one of symbol"),
    ("tags:", 'detectors:\n  - "source x abc"\ntags:', "not a detector", 9, "KIND NAME: PATTERN"),
    ("tags:", 'detectors:\n  - "source X_y: abc"\ntags:', "can't be named 'X_y'", 9, "lowercase"),
    ("tags:", 'detectors:\n  - "source x: exp(m"\ntags:', "not a regular expression", 9, "backslash"),
    ("tags:", 'detectors:\n  - "source x: a*"\ntags:', "matches everything", 9, "required"),
    ("tags:", 'detectors:\n  - "symbol x: make splash"\ntags:', "can't be a symbol pattern", 9, "dotted name"),
    ("tags:", 'detectors:\n  - "symbol x: *"\ntags:', "can't be a symbol pattern", 9, "dotted name"),
    ("tags:", 'detectors:\n  - "parameter x: block-q"\ntags:', "can't be a parameter pattern", 9, "block_q"),
    ("tags:", 'detectors:\n  - "flag x: --xla_tpu"\ntags:', "can't be a flag pattern", 9, "without dashes"),
    ("tags:", 'detectors:\n  - "hlo x: dot size=3"\ntags:', "means nothing in an hlo pattern", 9, "OPCODE"),
    ("tags:", 'detectors:\n  - "alias x: one"\n  - "source x: abc"\ntags:', "two detectors are named 'x'", 10, "own name"),
    ("tags:", 'levers:\n  - "pull-it"\ntags:', "lever 'pull-it' isn't described", 9, "under ## Levers"),
    ("## Levers\n", "## Levers\n- `pull-it`: hard\n", "isn't among the properties", 20, '- "pull-it"'),
    ("## Levers\n", "## Levers\n- pull it\n", "not a lever", 20, "`lever-name`"),
    ("tags:", 'requires:\n  - "a needs b"\ntags:', "not a relation", 9, "->"),
    ("## Facts\n", "## Facts\n- It is fast.\n", "a fact without a source", 23, "(source:"),
    ("## Facts\n", "## Facts\n- It is fast. (at: v6e)\n", "a fact without a source", 23, "source: "),
    ("## Facts\n", "## Facts\n- It is fast. (source: somebody told me)\n", "can't tell what source", 23, "arXiv"),
    ("## Facts\n", "## Facts\n- It is fast. (value: quick; source: arXiv:1805.02867)\n", "isn't a number", 23, "0.318 ms"),
    ("## Definition\nWhat good is, next to [[good]].\n", "", "defines nothing", 0, "## Definition"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "what", "line", "hint"), BROKEN, ids=[f"{row[2][:30]}-{i}" for i, row in enumerate(BROKEN)])
def test_a_broken_page(tmp_path: Path, old: str, new: str, what: str, line: int, hint: str) -> None:
    path = tmp_path / "good.md"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_page(path)
    assert what in caught.value.what
    assert caught.value.where.startswith(str(path))
    if line:
        assert caught.value.where.endswith(f":{line}")
    assert hint in caught.value.hint


def test_the_unchanged_page_is_good(tmp_path: Path) -> None:
    (tmp_path / "good.md").write_text(GOOD, encoding="utf-8")
    assert [concept.slug for concept in load_concepts(tmp_path)] == ["good"]


def test_other_pages_load_and_each_broken_one_is_told_once(tmp_path: Path) -> None:
    write_page(tmp_path, "alpha")
    write_page(tmp_path, "beta", meta='detectors:\n  - "nonsense"\n')
    (tmp_path / "gamma.md").write_bytes(b"---\nid: \xff\xfe\n---\n")
    write_page(tmp_path, "delta")
    loaded = read_concepts(tmp_path)
    assert [concept.slug for concept in loaded.concepts] == ["alpha", "delta"]
    assert [Path(problem.where.split(":")[0]).name for problem in loaded.problems] == ["beta.md", "gamma.md"]
    with pytest.raises(ConfigError, match="and 1 more"):
        load_concepts(tmp_path)


def test_a_relation_to_nothing_is_told_and_the_page_kept(tmp_path: Path) -> None:
    write_page(tmp_path, "alpha", meta='levers:\n  - "pull"\nrequires:\n  - "pull -> pul: always"\n  - "pull -> this: always"\n', levers="- `pull`: it")
    loaded = read_concepts(tmp_path)
    assert [(r.src, r.type, r.dst) for r in loaded.concepts[0].relations] == [("lever:pull", "requires", "concept:alpha")]
    assert [problem.hint for problem in loaded.problems] == ["did you mean lever:pull?"]


def test_two_pages_describe_one_lever(tmp_path: Path) -> None:
    for slug in ("alpha", "beta"):
        write_page(tmp_path, slug, meta='levers:\n  - "pull"\n', levers="- `pull`: it")
    loaded = read_concepts(tmp_path)
    assert [concept.slug for concept in loaded.concepts] == ["alpha"]
    assert "already described in alpha.md" in loaded.problems[0].what


def test_generated_regions_and_foreign_properties_are_left_alone(tmp_path: Path) -> None:
    path = write_page(tmp_path, "alpha", meta='cssclasses:\n  - "wide"\n', facts="- Fast. (source: https://example.org/x)")
    path.write_text(path.read_text() + "<!-- generated -->\n- not a fact\n", encoding="utf-8")
    assert [fact.text for fact in load_concepts(tmp_path)[0].facts] == ["Fast."]


def test_a_fact_in_full(tmp_path: Path) -> None:
    facts = "- Takes as\n  long. (at: v5e, bf16; value: 0.318 ms; measured: github:o/r@abc:x/y.ipynb; source: arXiv:2205.14135, section 3)"
    fact = load_concepts(write_page(tmp_path, "alpha", facts=facts).parent)[0].facts[0]
    assert (fact.text, fact.at, fact.value, fact.unit, fact.measured) == ("Takes as long.", "v5e, bf16", 0.318, "ms", True)
    assert [(c.kind, c.text) for c in fact.citations] == [("repo", "github:o/r@abc:x/y.ipynb"), ("paper", "arXiv:2205.14135, section 3")]
