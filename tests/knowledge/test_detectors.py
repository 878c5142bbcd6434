"""Detector lines as people write them, and the two ways in which matching is made fast without changing it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgagent.knowledge.detectors import alternatives, hlo_pattern, longest_literal, needles, parse_detector, text_regexes

LINES = [
    ("symbol maker: *.splash*.make_mha, jax.nn.softmax", "symbol", "maker", ("*.splash*.make_mha", "jax.nn.softmax")),
    ("parameter blocks: block_q,block_kv", "parameter", "blocks", ("block_q", "block_kv")),
    ("source max: exp\\(m, n\\)|a: b", "source", "max", ("exp\\(m, n\\)|a: b",)),
    ("  flag limit:  xla_tpu_*vmem*  ", "flag", "limit", ("xla_tpu_*vmem*",)),
    ("alias named: online softmax, flash-attention", "alias", "named", ("online softmax", "flash-attention")),
    ("hlo call: custom-call kernel=*splash*", "hlo", "call", ("custom-call kernel=*splash*",)),
]


@pytest.mark.parametrize("line, kind, name, patterns", LINES)
def test_a_line(line: str, kind: str, name: str, patterns: tuple[str, ...]) -> None:
    detector = parse_detector(line, where="page.md", line=7)
    assert (detector.kind, detector.name, detector.patterns, detector.line) == (kind, name, patterns, 7)


# detector line, text, what it matches ("" for nothing)
MATCHES = [
    ("parameter p: causal", "def f(q, causal):", "causal"),
    ("parameter p: causal", "f(q, causal=True)", "causal="),
    ("parameter p: causal", "class C:\n  causal: bool = False", "causal:"),
    ("parameter p: causal", "causal = 3", ""),
    ("parameter p: causal", "if causal:", ""),
    ("parameter p: causal", "f(x == causal == y)", ""),
    ("parameter p: causal", "f(acausal=1, causality=2)", ""),
    ("parameter p: causal", 'd["causal"]', ""),
    ("flag f: xla_tpu_limit_kib", '"--xla_tpu_limit_kib=3"', "xla_tpu_limit_kib"),
    ("flag f: xla_tpu_limit_kib", '"--xla_tpu_limit_kib_more=3"', ""),
    ("flag f: xla_*_limit*", '"--xla_tpu_limit_kib=3"', "xla_tpu_limit_kib"),
    ("alias a: online softmax", "An online-softmax kernel", "online-softmax"),
    ("alias a: online softmax", "OnlineSoftmax", "onlinesoftmax"),
    ("alias a: online softmax", "online softmaxes", ""),
    ("source s: ^x = (\\d+)", "y = 1\nx = 23", "x = 23"),
]


@pytest.mark.parametrize("line, text, matched", MATCHES)
def test_what_it_matches(line: str, text: str, matched: str) -> None:
    detector = parse_detector(line, where="", line=1)
    body = text.lower() if detector.kind == "alias" else text
    found = [match[0].strip("(,* \n") for regex in text_regexes(detector) for match in regex.finditer(body)]
    assert found == ([matched] if matched else [])


HLO = [
    ("hlo x: all-gather*", ("all-gather-start", "", "f32[8]", ""), True),
    ("hlo x: all-gather*", ("gather", "", "f32[8]", ""), False),
    ("hlo x: custom-call kernel=*splash*", ("custom-call", "splash_mha_fwd", "", ""), True),
    ("hlo x: custom-call kernel=*splash*", ("custom-call", "gmm", "", ""), False),
    ("hlo x: * shape=f32[8,128]*", ("fusion", "", "f32[8,128]{1,0}", ""), True),
    ("hlo x: * shape=f32[8,128]*", ("fusion", "", "f3281", ""), False),
]


@pytest.mark.parametrize("line, instruction, matched", HLO)
def test_hlo_instructions(line: str, instruction: tuple[str, str, str, str], matched: bool) -> None:
    assert hlo_pattern(parse_detector(line, where="", line=1)).matches(*instruction) is matched


LITERALS = [
    (r"exp\(m_prev - m_next\)", "exp(m_prev - m_next)"), (r"ab?cdef", "cdef"), (r"(foo|bar)baz", "baz"), (r"a|b", ""), (r"jnp\.exp2?\(", "jnp.exp"),
    (r"x{2,3}hello", "hello"), (r"[abc]lse", "lse"), (r"foo+bar", "foo"), (r"(?i)foo", ""), (r"[]x]yes", "yes"), (r"\w+\s*=", "="), (r"ab*", "a"),
]  # fmt: skip


@pytest.mark.parametrize("pattern, literal", LITERALS)
def test_the_longest_literal(pattern: str, literal: str) -> None:
    assert longest_literal(pattern) == literal


PIECES = st.sampled_from(["ab", "cde", "x?", "y*", "z+", r"\(", r"\s*", "[pq]", "(?:mn|op)", "r{1,2}", "st|uv", "(w)", r"\d", "."])


@given(st.lists(PIECES, min_size=1, max_size=6).map("".join), st.data())
def test_no_match_lacks_the_needles(pattern: str, data: st.DataObject) -> None:
    """Ruling a text out by its needles never loses a match."""
    text = data.draw(st.from_regex(re.compile(pattern, re.ASCII), fullmatch=True))
    for part in alternatives(pattern):
        if re.fullmatch(part, text):
            assert longest_literal(part) in text


def test_an_alias_needs_all_its_words() -> None:
    assert needles(parse_detector("alias a: one two, three", where="", line=1)) == (("one", "two"), ("three",))
