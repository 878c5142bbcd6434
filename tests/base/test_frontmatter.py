"""Frontmatter: nothing guessed when read, nothing lost when written."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kgagent.errors import ConfigError
from kgagent.frontmatter import dump_meta, parse_page, quote

TRAPS = [("no", "no"), ("1e-3", "1e-3"), ("12:30", "12:30"), ("0123456", "0123456"), ("1.10", "1.10"), ("2026-01-01", "2026-01-01"), ("~", "~")]


@pytest.mark.parametrize(("written", "read"), TRAPS)
def test_scalars_stay_text(written: str, read: str) -> None:
    assert parse_page(f"---\nkey: {written}\n---\nbody\n").meta == {"key": read}


@given(st.text(alphabet=st.characters(exclude_categories=("Cs",))))
def test_quoted_text_comes_back(value: str) -> None:
    quoted = quote(value)
    assert len(quoted.splitlines()) == 1
    assert yaml.load(quoted, Loader=yaml.CBaseLoader) == value


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,12}", fullmatch=True), st.text(alphabet=st.characters(exclude_categories=("Cs",))) | st.lists(st.text(max_size=8), max_size=3)
    )
)
def test_properties_come_back(meta: dict[str, str | list[str]]) -> None:
    page = parse_page(dump_meta(dict(meta)) + "# Body\n")
    assert page.meta == meta
    assert page.body == "# Body\n"


BROKEN = [
    ("---\ntitle: Splash: why\n---\n", "isn't YAML", ":2"),
    ("---\ntitle: x\n", "never closed", ""),
    ("---\n- a\n---\n", "list of properties", ""),
]


@pytest.mark.parametrize(("text", "message", "line"), BROKEN)
def test_a_broken_page_names_its_line(text: str, message: str, line: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse_page(text, where="page.md")
    assert line in caught.value.where


@pytest.mark.parametrize("text", ["", "no frontmatter\n", "----\nx: 1\n---\n", "---\n---\n"])
def test_pages_without_properties(text: str) -> None:
    assert parse_page(text).meta == {}
