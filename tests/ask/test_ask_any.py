"""Whatever is asked: an answer, or a `UsageError`; never anything else, and never a citation that doesn't hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import Built, build
from hypothesis import given, settings
from hypothesis import strategies as st

from kgagent.ask import why
from kgagent.errors import UsageError

VOCABULARY = """
why is splash fast here than chunked einsum grouped tokamax attention kernel block_q softmax online v6e:2x2 lane flash 256 hyp ? " * NEAR(
lever:attention/impl=splash concept:streaming-softmax exp:attention/0002 compile:attention/v6e:2x2/aaaa0001
"""
WORDS = st.sampled_from(VOCABULARY.split())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("any"))


@settings(max_examples=150, deadline=None)
@given(question=st.one_of(st.lists(WORDS, max_size=7).map(" ".join), st.text(max_size=40)))
def test_any_question(shared: Built, question: str) -> None:
    with shared.open() as graph:
        try:
            answer = why(graph, question)
        except UsageError:
            return
    assert answer.findings or answer.unknown
    assert (answer.subject is None) <= (answer.findings == ())
    for finding in answer.findings:
        assert finding.edges and finding.text.strip() and finding.strength
        for citation in finding.citations:
            assert citation.end_line <= len(Path(citation.path).read_text().splitlines())
