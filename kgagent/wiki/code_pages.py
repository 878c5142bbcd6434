"""Pages of what was read from source: kernels and sources."""

from __future__ import annotations

from kgagent.graph import Node
from kgagent.wiki.facts import Facts, counted, more, page, place
from kgagent.wiki.properties import Properties
from kgagent.wiki.text import code, prose, slug, table
from kgagent.wiki.vault import Draft

SHOWN = 60


def kernel_name(node: Node) -> str:
    """`jax-splash_attention_kernel-flash_attention_kernel`: package, module and kernel."""
    parts = node.id.removeprefix("kernel:").split("/")
    return slug("-".join(dict.fromkeys([parts[0], *parts[-2:]])))


def kernel(facts: Facts, node: Node) -> Draft:
    """Launch, wrapper, body, tunables, concepts, compiles."""
    row = facts.rows(
        """SELECT k.api, k.backend, k.launch_line, lf.id, w.id, wf.id, w.line_start, w.line_end, b.id, bf.id, b.line_start, b.line_end,
                  k.body_how, k.body_text, k.grid
           FROM kernel k LEFT JOIN node lf ON lf.key = k.launch_file LEFT JOIN node w ON w.key = k.wrapper LEFT JOIN node wf ON wf.key = w.file
           LEFT JOIN node b ON b.key = k.body LEFT JOIN node bf ON bf.key = b.file WHERE k.key = ?""",
        node.key,
    )
    own: Properties = {"id": node.id, "kind": "kernel", "title": node.name}
    parts = [f"# {prose(node.name)}", prose(node.doc) if node.doc else ""]
    if row:
        api, backend, line, launch, wrapper, wrapper_file, w_start, w_end, body, body_file, b_start, b_end, how, body_text, grid = row[0]
        own |= {"backend": backend, "path": f"{str(launch or '').removeprefix('file:')}:{line}", "body": (body or "").removeprefix("sym:")}
        rows = [["launch", code(api), place(launch, line)], ["backend", prose(backend.replace("_", " ")), ""]]
        if wrapper:
            rows.append(["wrapper", code(wrapper.removeprefix("sym:")), place(wrapper_file, w_start, w_end)])
        shown = code(body.removeprefix("sym:")) if body else "not resolved: " + code(body_text or "?")
        rows.append(["body", shown, place(body_file, b_start, b_end) or prose(how)])
        if grid:
            rows.append(["grid", code(grid), ""])
        parts.append(table(["", "what", "where"], rows))
    parts += [_tunables(facts, node), _concepts(facts, node), _callers(facts, node), _copies(facts, node), _compiles(facts, node)]
    return Draft(node.id, "kernels", kernel_name(node), own, {"tags": ["kernel"], "aliases": [node.name]}, page(*parts))


def _tunables(facts: Facts, node: Node) -> str:
    rows = facts.rows(
        """SELECT n.name, json_extract(n.data, '$.default'), f.id, n.line_start FROM edge e JOIN node n ON n.key = e.src LEFT JOIN node f ON f.key = n.file
           WHERE e.dst = ? AND e.type = 'tunes' ORDER BY f.id, n.line_start, n.name""",
        node.key,
    )
    lines = [[code(name), code(str(default)) if default not in (None, "") else "", place(file, line)] for name, default, file, line in rows]
    text = table(["tunable", "default", "where"], lines)
    return f"## Tunables\n\n{text}" if text else ""


def _concepts(facts: Facts, node: Node) -> str:
    rows = facts.rows(
        """WITH RECURSIVE own(key, depth) AS (
             SELECT ?1, 0 UNION SELECT src, 0 FROM edge WHERE dst = ?1 AND type IN ('wraps', 'implements')
             UNION SELECT e.dst, own.depth + 1 FROM own JOIN edge e ON e.src = own.key AND e.type = 'defines' WHERE own.depth < 2)
           SELECT DISTINCT c.id, c.name, f.id, m.line FROM own JOIN edge m ON m.src = own.key AND m.type = 'mentions'
           JOIN node c ON c.key = m.dst LEFT JOIN node f ON f.key = m.file ORDER BY 2, 3, 4""",
        node.key,
    )
    by_concept: dict[tuple[str, str], list[str]] = {}
    for id_, name, file, line in rows:
        by_concept.setdefault((id_, name), []).append(place(file, line))
    lines = []
    for (id_, name), places in by_concept.items():
        rest = f" and {len(places) - 6} more" if len(places) > 6 else ""
        lines.append(f"- {facts.link(id_, name)}: {', '.join(places[:6])}{rest}")
    return "## Concepts\n\n" + "\n".join(lines) if lines else ""


def _callers(facts: Facts, node: Node) -> str:
    rows = facts.rows(
        """SELECT DISTINCT s.id, f.id, c.line FROM edge w JOIN edge c ON c.dst = w.src AND c.type = 'calls' JOIN node s ON s.key = c.src
           LEFT JOIN node f ON f.key = c.file WHERE w.dst = ? AND w.type = 'wraps' ORDER BY s.id, c.line""",
        node.key,
    )
    lines = [f"- {code(id_.removeprefix('sym:'))} {place(file, line)}" for id_, file, line in rows[:12]]
    return "## Called from\n\n" + "\n".join(lines) + more(len(rows), 12, code(f"kgagent neighbors {node.id}")) if lines else ""


def _copies(facts: Facts, node: Node) -> str:
    """Kernels of other sources with much the same text, older or younger."""
    rows = facts.rows(
        """SELECT o.id, o.name, s.name, json_extract(e.data, '$.likeness'), e.src = ?1 FROM edge e
           JOIN node o ON o.key = CASE WHEN e.src = ?1 THEN e.dst ELSE e.src END JOIN node s ON s.key = o.source
           WHERE (e.src = ?1 OR e.dst = ?1) AND e.type = 'vendored_from' ORDER BY 5 DESC, 4 DESC, o.id""",
        node.key,
    )
    lines = [
        f"- {'of' if is_copy else 'in'} {prose(source)}: {facts.link(id_, name)}" + (f", {100 * likeness:.0f}% alike" if likeness else "")
        for id_, name, source, likeness, is_copy in rows
    ]
    return "## Copies\n\n" + "\n".join(lines) if lines else ""


def _compiles(facts: Facts, node: Node) -> str:
    rows = facts.rows(
        """SELECT DISTINCT p.id, p.name, o.name FROM edge l JOIN node o ON o.key = l.src JOIN edge h ON h.dst = o.key AND h.type = 'has_op'
           JOIN node p ON p.key = h.src WHERE l.dst = ? AND l.type = 'lowered_from' ORDER BY p.id, o.name""",
        node.key,
    )
    lines = [f"- {facts.link(id_, name)}: {code(op)}" for id_, name, op in rows[:SHOWN]]
    return "## Seen in compiles\n\n" + "\n".join(lines) + more(len(rows), SHOWN, code(f"kgagent neighbors {node.id}")) if lines else ""


def source_name(node: Node) -> str:
    """`src-jax`."""
    return slug(f"src-{node.name}")


def source(facts: Facts, node: Node) -> Draft:
    """What was read, at which revision, and the kernels in it."""
    row = facts.rows("SELECT locator, revision FROM source WHERE key = ?", node.key)
    locator, revision = row[0] if row else ("", "")
    counts = dict(facts.rows("SELECT status, count(*) FROM file WHERE source = ? GROUP BY status", node.key))
    symbols = facts.graph.value("SELECT count(*) FROM node WHERE source = ? AND kind = 'symbol'", node.key)
    kernels = facts.rows("SELECT n.id, n.name, k.backend FROM node n JOIN kernel k ON k.key = n.key WHERE n.source = ? ORDER BY n.id", node.key)
    own: Properties = {
        "id": node.id, "kind": "source", "title": node.name, "locator": locator, "revision": revision, "files": sum(counts.values()), "kernels": len(kernels)
    }  # fmt: skip
    said = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    size = f"{counted(sum(counts.values()), 'file')} ({said or 'none'}), {counted(symbols, 'symbol')}, {counted(len(kernels), 'kernel')}"
    bad = facts.rows("SELECT path, status, reason FROM file WHERE source = ? AND status <> 'ok' ORDER BY path", node.key)
    parts = [
        f"# {prose(node.name)}",
        f"{code(locator)} at revision {code(revision)}: {size}.",
        "## Kernels" if kernels else "",
        table(["kernel", "backend"], [[facts.link(id_, name), prose(backend.replace("_", " "))] for id_, name, backend in kernels[:300]]),
        more(len(kernels), 300, code("kgagent kernels")),
        "## Not read whole" if bad else "",
        table(["file", "status", "why"], [[code(path), status, prose(reason)] for path, status, reason in bad[:SHOWN]]),
        more(len(bad), SHOWN, code("kgagent sources")),
    ]
    return Draft(node.id, "sources", source_name(node), own, {"tags": ["source"], "aliases": [node.name]}, page(*parts))
