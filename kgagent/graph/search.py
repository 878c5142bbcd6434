"""Find nodes by text: exact ids first, then names and words, then substrings, ranking a bounded set.

Ranking every match of a common word would read the whole graph, so FTS hands over a bounded number and those are ranked.
"""

from __future__ import annotations

import re

from kgagent.graph.records import Hit
from kgagent.graph.store import NODE_COLUMNS, Graph, node_of
from kgagent.graph.words import split_identifier

CANDIDATES = 400
# Kinds a person means first when several match alike.
KIND_RANK = {"concept": 0, "kernel": 0, "lane": 0, "lever": 1, "experiment": 1, "hypothesis": 1, "symbol": 2, "knob": 2, "flag": 2}


def find(graph: Graph, text: str, *, kind: str | None = None, limit: int = 20) -> tuple[Hit, ...]:
    """The best `limit` nodes for a text; an empty tuple when nothing matches."""
    text = text.replace("\0", " ").strip()
    if not text:
        return ()
    found: dict[int, tuple[float, Hit]] = {}
    kind_sql, kind_values = ("AND n.kind = ?", (kind,)) if kind else ("", ())
    for row in graph.rows(f"SELECT {NODE_COLUMNS} FROM node n WHERE n.id = ? {kind_sql}", text, *kind_values):
        found[row[0]] = (-100.0, Hit(node_of(row), "id"))
    words = dict.fromkeys([*split_identifier(text).split(), *re.findall(r"\w+", text.lower())])
    query = _query(words)
    if query:
        sql = f"""SELECT {NODE_COLUMNS} FROM (SELECT rowid AS key FROM node_fts WHERE node_fts MATCH ? LIMIT {CANDIDATES}) c
                  JOIN node n ON n.key = c.key WHERE 1 {kind_sql}"""
        for row in graph.rows(sql, query, *kind_values):
            if row[0] not in found:
                node = node_of(row)
                score, why = _score(node.name, node.id, node.doc, list(split_identifier(text).split()), text)
                found[row[0]] = (score + KIND_RANK.get(node.kind, 3) * 0.5, Hit(node, why))
    if len(found) < limit and len(text) >= 3:
        quoted = _trigrams(text)
        sql = f"""SELECT {NODE_COLUMNS} FROM (SELECT rowid AS key FROM node_trigram WHERE node_trigram MATCH ? LIMIT {CANDIDATES}) c
                  JOIN node n ON n.key = c.key WHERE 1 {kind_sql}"""
        for row in graph.rows(sql, quoted, *kind_values):
            node = node_of(row)
            if row[0] not in found and text.lower() in node.id.lower():
                found[row[0]] = (20.0 + len(node.id) / 200 + KIND_RANK.get(node.kind, 3), Hit(node, "substring"))
    ranked = sorted(found.values(), key=lambda pair: (pair[0], pair[1].node.id))
    return tuple(hit for _, hit in ranked[:limit])


def _query(words: dict[str, None]) -> str:
    """All words as prefixes; FTS syntax in what people type is never interpreted."""
    return " ".join(f'"{word}"*' for word in words if word)


def _trigrams(text: str) -> str:
    """All three-letter runs; the index keeps no positions (half the size), so the caller checks the substring itself."""
    runs = dict.fromkeys(text[i : i + 3] for i in range(len(text) - 2))
    return " ".join('"' + run.replace('"', '""') + '"' for run in runs)


def _score(name: str, id_: str, doc: str, words: list[str], text: str) -> tuple[float, str]:
    """Lower is better: whole name, then all words in the name, then in the id, then in the text."""
    lower = name.lower()
    parts = split_identifier(name).split()
    if lower == text.lower():
        return 0.0, "name"
    if all(any(part == word for part in parts) for word in words):
        return 1.0 + len(parts) / 10, "name"
    if all(any(part.startswith(word) for part in parts) for word in words):
        return 3.0 + len(parts) / 10, "name"
    if all(word in id_.lower() for word in words):
        return 5.0 + len(id_) / 200, "words"
    return 8.0 + len(doc) / 2000, "doc"
