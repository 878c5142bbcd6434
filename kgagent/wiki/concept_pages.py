"""The one region kgagent adds to a concept page: where the concept is in code, what tested it, what is claimed about it."""

from __future__ import annotations

from kgagent.graph import Node
from kgagent.wiki.facts import Facts, more, page, place
from kgagent.wiki.text import code, prose, table

REGION = "graph"
SHOWN = 40
SHOWN_SYMBOLS = 15
NOTHING = page("## In the graph", "Nothing in the graph is linked to it.")


def concept(facts: Facts, node: Node) -> str:
    """The region's content; '' when the graph has nothing to say about the concept."""
    mentions = facts.rows(
        """SELECT s.id, s.kind, f.id, min(m.line), count(*) FROM edge m JOIN node s ON s.key = m.src LEFT JOIN node f ON f.key = m.file
           WHERE m.dst = ? AND m.type = 'mentions' GROUP BY s.id ORDER BY s.kind <> 'kernel', count(*) DESC, s.id""",
        node.key,
    )
    kernels = facts.rows(
        """SELECT DISTINCT k.id, k.name FROM edge m JOIN edge t ON t.src = m.src AND t.type IN ('wraps', 'implements') JOIN node k ON k.key = t.dst
           WHERE m.dst = ?1 AND m.type = 'mentions' UNION SELECT k.id, k.name FROM edge m JOIN node k ON k.key = m.src
           WHERE m.dst = ?1 AND m.type = 'mentions' AND k.kind = 'kernel' ORDER BY 1""",
        node.key,
    )
    tried = facts.rows(
        """SELECT DISTINCT n.id, n.name, coalesce(v.verdict, e.outcome),
                  (SELECT max(c.speedup_vs_reference) FROM comparison c WHERE c.experiment = e.key), s.chip
           FROM edge t JOIN hypothesis h ON h.key = t.src OR h.key IN (SELECT u.src FROM edge u WHERE u.dst = t.src AND u.type = 'uses')
           JOIN experiment e ON e.hypothesis = h.key JOIN node n ON n.key = e.key JOIN scope s ON s.key = e.scope LEFT JOIN verdict v ON v.experiment = e.key
           WHERE t.dst = ? AND t.type = 'tests_concept' ORDER BY n.id""",
        node.key,
    )
    claims = facts.rows(
        "SELECT c.text, c.status, c.cited FROM edge e JOIN claim c ON c.key = e.src WHERE e.dst = ? AND e.type = 'supports' ORDER BY c.status, c.text", node.key
    )
    if not (mentions or kernels or tried or claims):
        return ""
    symbols = [row for row in mentions if row[1] != "kernel"]
    return page(
        "## In the graph",
        "Kernels: " + ", ".join(facts.link(id_, name) for id_, name in kernels[:SHOWN]) + "." if kernels else "",
        more(len(kernels), SHOWN, code(f"kgagent neighbors {node.id}")),
        table(
            ["symbol", "lines", "first at"],
            [[code(id_.removeprefix("sym:")), str(count), place(file, line)] for id_, _, file, line, count in symbols[:SHOWN_SYMBOLS]],
        ),
        more(len(symbols), SHOWN_SYMBOLS, code(f"kgagent neighbors {node.id}")),
        table(
            ["experiment", "verdict", "over the reference", "on"],
            [[facts.link(id_), verdict, f"{speedup:.3g}x" if speedup is not None else "", prose(chip)] for id_, _, verdict, speedup, chip in tried[:SHOWN]],
        ),
        more(len(tried), SHOWN, code(f"kgagent neighbors {node.id}")),
        table(["claim", "status", "source"], [[prose(text), status, prose(cited)] for text, status, cited in claims[:SHOWN]]),
        more(len(claims), SHOWN, code(f"kgagent neighbors {node.id}")),
    )
