"""A small concept page for tests, written with the parts a test wants to change."""

from __future__ import annotations

from pathlib import Path

PAGE = """---
id: "concept:{slug}"
kind: "concept"
title: "{slug} title"
summary: "Why it is fast."
aliases:
  - "{slug} alias"
tags:
  - "test"
{meta}---
# Title

## Definition
What {slug} is, next to [[{link}]].

## Mechanism
How it works.

## Levers
{levers}

## Facts
{facts}
"""


def write_page(folder: Path, slug: str, *, meta: str = "", levers: str = "", facts: str = "", link: str | None = None) -> Path:
    """A page in a folder; without changes it is a valid one."""
    path = folder / f"{slug}.md"
    path.write_text(PAGE.format(slug=slug, meta=meta, levers=levers, facts=facts, link=link or slug), encoding="utf-8")
    return path
