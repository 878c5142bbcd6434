"""The guide's example is a page that loads, and its text names every kind of detector there is."""

from __future__ import annotations

from pathlib import Path

from kgagent.knowledge.pages import read_page
from kgagent.knowledge.records import DETECTOR_KINDS

GUIDE = (Path(__file__).parents[2] / "kgagent" / "knowledge" / "README.md").read_text(encoding="utf-8")


def test_the_example_page_loads(tmp_path: Path) -> None:
    path = tmp_path / "prefix-sum.md"
    path.write_text(GUIDE.split("```markdown\n", 1)[1].split("```", 1)[0], encoding="utf-8")
    concept = read_page(path)
    assert [detector.kind for detector in concept.detectors] == ["symbol", "parameter", "source", "flag", "hlo", "alias"]
    assert [fact.measured for fact in concept.facts] == [False, True]
    assert [relation.dst for relation in concept.relations] == ["lever:tune-block-sizes"]


def test_every_kind_is_explained() -> None:
    assert all(f"| `{kind}` |" in GUIDE for kind in DETECTOR_KINDS)
