"""Names and texts from repositories, however odd, stay on their line and out of Obsidian's grammar."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgagent.wiki.regions import Damaged, find_regions, outside, write_region
from kgagent.wiki.text import MAX_NAME, block, code, label, prose, slug, table

ODD = st.text(alphabet=st.one_of(st.sampled_from("`|[]#^:%<>!-*_\\$~\n\r\t\x00\x85\u2028 ab1"), st.characters()), max_size=60)

SLUGS = [
    ("flash_attention_kernel", "flash_attention_kernel"),
    ("exp:attention/0001", "exp-attention-0001"),
    ("compile:attention/v6e:2x2/1a2b", "compile-attention-v6e-2x2-1a2b"),
    ("A|B#C^D: %%E [[F]]", "a-b-c-d-e-f"),
    ("../../etc/passwd", "etc-passwd"),
    ("Übung", "ubung"),
]


@pytest.mark.parametrize("name, expected", SLUGS)
def test_slug(name: str, expected: str) -> None:
    assert slug(name) == expected


@given(ODD)
def test_a_slug_is_always_a_safe_name(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9_][a-z0-9_-]*", slug(name)) and len(slug(name)) <= MAX_NAME


def test_long_names_stay_apart() -> None:
    first, second = slug("x" * 300 + "a"), slug("x" * 300 + "b")
    assert first != second and len(first) <= MAX_NAME


PROSE = [
    ("a | b", "a | b"),
    ("see [[x]] and #tag", "see &#91;&#91;x&#93;&#93; and \\#tag"),
    ("%% hidden %%", "&#37;&#37; hidden &#37;&#37;"),
    ("use `a_b` and c_d", "use `a_b` and c\\_d"),
    ("one ` tick", "one ' tick"),
    ("<!-- kg:end page -->", "&lt;!-- kg:end page -->"),
    ("- not a list", "\\- not a list"),
    ("two\nlines", "two lines"),
]


@pytest.mark.parametrize("text, expected", PROSE)
def test_prose(text: str, expected: str) -> None:
    assert prose(text) == expected


CODE = [("a", "`a`"), ("a`b", "``a`b``"), ("`", "`` ` ``"), ("a``b`c", "```a``b`c```"), ("", "` `"), ("a\nb", "`a b`")]


@pytest.mark.parametrize("text, expected", CODE)
def test_code(text: str, expected: str) -> None:
    assert code(text) == expected


@given(ODD, ODD)
def test_a_table_has_one_line_a_row_and_the_same_cells(first: str, second: str) -> None:
    lines = table(["a", "b"], [[prose(first), code(second)]]).split("\n")
    assert len(lines) == 3
    assert len(re.findall(r"(?<!\\)\|", lines[2])) == 3 or "\\\\|" in lines[2] or "\\|" in first + second


@given(ODD)
def test_link_labels_never_end_the_link(text: str) -> None:
    assert not set(label(text)) & set("[]|#^`<>\n") and "%%" not in label(text)


@given(st.lists(st.sampled_from(["prose", "code", "block"]), max_size=4), ODD)
def test_no_content_can_close_its_own_region(kinds: list[str], text: str) -> None:
    evil = text + "\n<!-- kg:end page -->\n" + text
    content = "\n" + "\n\n".join({"prose": prose, "code": code, "block": block}[kind](evil) for kind in kinds) + "\n\n"
    written = f"before\n{write_region('page', content)}\nafter\n"
    regions = find_regions(written)
    assert [region.content for region in regions] == [content] and regions[0].intact
    assert outside(written, regions) == "before\n\nafter\n"


DAMAGED = [
    "<!-- kg:begin page " + "0" * 64 + " -->\nx\n",
    "x\n<!-- kg:end page -->\n",
    write_region("page", "a\n") + "\n" + write_region("page", "b\n"),
    "<!-- kg:begin page 12 -->\nx\n<!-- kg:end page -->\n",
]


@pytest.mark.parametrize("text", DAMAGED)
def test_markers_that_do_not_pair_are_damage(text: str) -> None:
    with pytest.raises(Damaged):
        find_regions(text)


def test_line_endings_are_not_an_edit() -> None:
    text = write_region("page", "a\nb\n").replace("\n", "\r\n")
    assert find_regions(text)[0].intact
