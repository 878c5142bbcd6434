"""Pages of compiles and measured profiles: what the compiler said, memory, and which instructions came and went with their source lines."""

from __future__ import annotations

import json
from typing import Any

from kgagent.graph import Node
from kgagent.wiki.facts import Facts, mib, more, page, place
from kgagent.wiki.properties import Properties
from kgagent.wiki.research_pages import knobs_text
from kgagent.wiki.text import block, code, prose, slug, table
from kgagent.wiki.vault import Draft

SHOWN = 40
TIMED = 15


def profile_name(node: Node) -> str:
    """`compile-attention-v6e-2x2-1a2b3c4d`."""
    return slug(node.id)


def profile(facts: Facts, node: Node) -> Draft:
    """Status, memory, and the difference from the reference's compile."""
    data = node.data
    own: Properties = {"id": node.id, "kind": "profile", "title": node.name}
    for name in ("status", "label", "topology", "jax"):
        if data.get(name):
            own[name] = str(data[name])
    figures = data.get("memory")
    memory: dict[str, Any] = figures if isinstance(figures, dict) else {}
    temp = next((value for name, value in sorted(memory.items()) if name.startswith("temp") and isinstance(value, (int, float))), None)
    if temp is not None:
        own["temp_mib"] = mib(temp)
    lane = facts.rows("SELECT l.id FROM edge e JOIN node l ON l.key = e.dst WHERE e.src = ? AND e.type = 'within' AND l.kind = 'lane'", node.key)
    if lane:
        own["lane"] = lane[0][0].removeprefix("lane:")
    knobs = facts.graph.value("SELECT c.knobs FROM edge e JOIN configuration c ON c.key = e.dst WHERE e.src = ? AND e.type = 'uses'", node.key)
    against = facts.rows("SELECT p.id, p.name FROM edge e JOIN node p ON p.key = e.dst WHERE e.src = ? AND e.type = 'differs_from' ORDER BY p.id", node.key)
    rows = [["lane", facts.link(lane[0][0])]] if lane else []
    rows += [["configuration", knobs_text(knobs)]] if knobs is not None else []
    rows += [[name, prose(_plain(data[name]))] for name in ("label", "topology", "status", "jax", "libtpu", "seconds") if data.get(name) not in (None, "")]
    rows += [["against", ", ".join(facts.link(id_, name) for id_, name in against)]] if against else []
    parts = [
        f"# {prose(node.name)}",
        table(["", ""], rows),
        f"## The compiler's words\n\n{block(_error(data['error']))}" if data.get("error") else "",
        f"## Memory\n\n{table(['what', 'size'], [[code(name), _size(value)] for name, value in sorted(memory.items())])}" if memory else "",
        _measured(data),
        _heaviest(facts, node),
        _drawing(facts, node),
        _ops(facts, node, "removes", "Went"),
        _ops(facts, node, "adds", "Came"),
    ]
    return Draft(node.id, "profiles", profile_name(node), own, {"tags": ["profile"], "aliases": [node.name]}, page(*parts))


def _plain(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _error(error: Any) -> str:
    """A refusal as the compiler worded it."""
    if isinstance(error, dict):
        return "\n".join(str(error[name]) for name in ("what", "message", "hint") if error.get(name))
    return str(error)


def _size(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return prose(json.dumps(value))
    return f"{value / 1048576:,.3f} MiB" if value >= 1024 else f"{value:g} B"


def _measured(data: dict[str, Any]) -> str:
    """What a trace says of each device; what it lacks is named."""
    devices = data.get("devices")
    if not isinstance(devices, list):
        return ""  # a compile says how many devices, and ran on none
    rows = [
        [prose(str(d.get("name", ""))), prose(str(d.get("device_type", ""))), str(d.get("executions", "")), f"{d['busy_us']:,.3f} us", f"{d['op_us']:,.3f} us"]
        for d in devices
    ]
    lacks = [f"Not in this trace for {prose(str(d.get('name', '')))}: {prose(', '.join(d['absent']))}." for d in devices if d.get("absent")]
    head = f"{prose(str(data.get('remainder', '')))}."
    return "\n\n".join(["## Measured", head, table(["device", "type", "executions", "busy", "in operations"], rows), *lacks])


def _heaviest(facts: Facts, node: Node) -> str:
    """The operations with most self time and their innermost lines."""
    rows = facts.rows(
        """SELECT o.name, json_extract(o.data, '$.op_class'), json_extract(o.data, '$.self_us'), json_extract(o.data, '$.share'),
                  json_extract(o.data, '$.kernel_name'), json_extract(o.data, '$.line')
           FROM edge e JOIN node o ON o.key = e.dst WHERE e.src = ? AND e.type = 'has_op' AND json_extract(o.data, '$.self_us') IS NOT NULL
           ORDER BY 3 DESC, o.name""",
        node.key,
    )
    lines = [
        [
            code(name),
            prose(kind or ""),
            f"{us:,.3f} us",
            f"{100 * share:.1f}%",
            code(kernel) if kernel else "",
            code("/".join(line.split("/")[-2:])) if line else "",
        ]
        for name, kind, us, share, kernel, line in rows[:TIMED]
    ]
    text = table(["operation", "class", "self time", "share", "kernel", "source line"], lines)
    return f"## Where the time goes\n\n{text}\n{more(len(rows), TIMED, code(f'kgagent evidence {node.id}'))}" if text else ""


def _drawing(facts: Facts, node: Node) -> str:
    """The flame graph beside the page; it says its own remainder."""
    name = facts.drawings.get(node.id)
    if name is None:
        return ""
    what = "self time" if node.data.get("unit") == "us" else "bytes written (predicted, not time)"
    return f"## Flame graph\n\nBy source function, widths are {what}; what has no line is a box of its own.\n\n![flame graph]({name})"


def _ops(facts: Facts, node: Node, type_: str, head: str) -> str:
    """The heaviest instructions that came or went."""
    rows = facts.rows(
        """SELECT o.name, json_extract(o.data, '$.opcode'), json_extract(o.data, '$.shape'), json_extract(o.data, '$.bytes'),
                  json_extract(o.data, '$.kernel_name'),
                  (SELECT f.id FROM edge fl JOIN edge w ON w.src = fl.dst AND w.type = 'within' JOIN node s ON s.key = w.dst JOIN node f ON f.key = s.file
                   WHERE fl.src = o.key AND fl.type = 'from_line' LIMIT 1),
                  (SELECT l.id FROM edge fl JOIN node l ON l.key = fl.dst WHERE fl.src = o.key AND fl.type = 'from_line' LIMIT 1)
           FROM edge e JOIN node o ON o.key = e.dst WHERE e.src = ? AND e.type = ? ORDER BY 4 DESC, o.name""",
        node.key, type_,
    )  # fmt: skip
    lines = []
    for name, opcode, shape, size, kernel, file, line in rows[:SHOWN]:
        path, _, number = str(line or "").removeprefix("line:").rpartition("#L")
        at = int(number) if number.isdigit() else None
        where = place(file, at) if file else code(f"{'/'.join(path.split('/')[-2:])}:{number}") if line else ""
        lines.append([code(name), prose(opcode or ""), code(str(shape or "")), _size(size) if size is not None else "", code(kernel) if kernel else "", where])
    text = table(["instruction", "opcode", "shape", "bytes", "kernel", "source line"], lines)
    return f"## {head}\n\n{text}\n{more(len(rows), SHOWN, code(f'kgagent neighbors {node.id}'))}" if text else ""
