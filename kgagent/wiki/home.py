"""The home page: what is here, the frontier of every lane, the latest verdicts."""

from __future__ import annotations

import json

from kgagent.wiki import directory
from kgagent.wiki.facts import Facts, page, times
from kgagent.wiki.research_pages import knobs_text
from kgagent.wiki.text import prose, table
from kgagent.wiki.vault import Draft

ID = "wiki:home"
LATEST = 20
COUNTED = ("source", "symbol", "kernel", "concept", "lane", "hypothesis", "experiment", "profile")


def home(facts: Facts) -> Draft:
    """`kgagent.md`."""
    counts = dict(facts.rows("SELECT kind, count(*) FROM node WHERE kind IN (SELECT value FROM json_each(?)) GROUP BY kind", json.dumps(COUNTED)))
    lanes = facts.rows("SELECT id, name FROM node WHERE kind = 'lane' ORDER BY id")
    sources = facts.rows("SELECT n.id, n.name, s.revision FROM source s JOIN node n ON n.key = s.key ORDER BY n.id")
    frontier = facts.rows(
        """SELECT l.id, s.chip, e.id, f.speedup_vs_reference, c.knobs FROM frontier f JOIN node l ON l.key = f.lane JOIN scope s ON s.key = f.scope
           JOIN node e ON e.key = f.experiment JOIN configuration c ON c.key = f.configuration ORDER BY l.id, s.chip, e.id""",
    )
    latest = facts.rows(
        """SELECT n.id, n.name, v.verdict, s.chip FROM verdict v JOIN node n ON n.key = v.experiment JOIN experiment e ON e.key = v.experiment
           JOIN scope s ON s.key = e.scope ORDER BY v.experiment DESC LIMIT ?""",
        LATEST,
    )
    concepts = facts.rows("SELECT id, name FROM node WHERE kind = 'concept' ORDER BY name")
    said = ", ".join(f"{count} {_plural(kind, count)}" for kind, count in sorted(counts.items()))
    content = page(
        "# kgagent",
        f"This vault mirrors graph.db: {said}." if said else "The graph is empty.",
        "What lies between kgagent's comment markers is generated; everything else on a page is yours.",
        "Lanes: " + ", ".join(facts.link(id_, name) for id_, name in lanes) if lanes else "",
        "Sources: " + ", ".join(f"{facts.link(id_, name)} {prose(revision)}" for id_, name, revision in sources) if sources else "",
        f"Kernels by function: {facts.link(directory.ID, 'kernel directory')}" if directory.ID in facts.pages else "",
        "Views: [[hypotheses.base|hypotheses]], [[frontier.base|frontier]], [[kernels.base|kernels]]",
        "## Frontier" if frontier else "",
        table(
            ["lane", "on", "experiment", "over the reference", "configuration"],
            [[facts.link(lane), prose(chip), facts.link(id_), times(speedup), knobs_text(knobs)] for lane, chip, id_, speedup, knobs in frontier],
        ),
        "## Latest verdicts" if latest else "",
        table(["experiment", "verdict", "on", ""], [[facts.link(id_), verdict, prose(chip), prose(name)] for id_, name, verdict, chip in latest]),
        "## Concepts" if concepts else "",
        "\n".join(f"- {facts.link(id_, name)}" for id_, name in concepts),
    )
    return Draft(ID, "", "kgagent", {"id": ID, "kind": "home", "title": "kgagent"}, {"tags": ["home"]}, content)


def _plural(kind: str, count: int) -> str:
    return kind if count == 1 else {"hypothesis": "hypotheses"}.get(kind, kind + "s")
