"""`render`: the graph as a vault, one way; what a person wrote is never moved, and a second render writes nothing.

An edited region or property is kept and reported: the safe choice is that kgagent stops writing there until the person
deletes the region (then it is written anew) or restores it. Pages whose node is gone go only if nothing in them is a person's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kgagent.graph import Graph, Node
from kgagent.graph.store import NODE_COLUMNS, node_of
from kgagent.wiki import code_pages, compile_pages, concept_pages, directory, home, lane_pages, obsidian, research_pages
from kgagent.wiki.drawings import Draw, drawing_path, put_drawing
from kgagent.wiki.facts import Facts
from kgagent.wiki.vault import Conflict as Conflict
from kgagent.wiki.vault import Draft, Vault


@dataclass(frozen=True, slots=True)
class WikiReport:
    """What a render did; paths are relative to the vault."""

    root: str
    written: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: int
    conflicts: tuple[Conflict, ...]


# kind -> (folder, name of a new page, writer)
PAGES: dict[str, tuple[str, Callable[[Node], str], Callable[[Facts, Node], Draft]]] = {
    "source": ("sources", code_pages.source_name, code_pages.source),
    "kernel": ("kernels", code_pages.kernel_name, code_pages.kernel),
    "lane": ("lanes", research_pages.research_name, lane_pages.lane),
    "hypothesis": ("hypotheses", research_pages.research_name, research_pages.hypothesis),
    "experiment": ("experiments", research_pages.research_name, research_pages.experiment),
    "profile": ("profiles", compile_pages.profile_name, compile_pages.profile),
}
PREFIXES = ("dir:", "src:", "kernel:", "lane:", "hyp:", "exp:", "compile:", "profile:")


def render(graph: Graph, *, draw: Draw | None = None) -> WikiReport:
    """Bring the vault up to date with the graph; `draw` makes the drawing that stands beside a profile's page."""
    vault = Vault.scan(graph.workspace.wiki)
    nodes = _nodes(graph)
    vault.place(home.ID, "", "kgagent")
    for node in nodes:
        if node.kind in PAGES:
            folder, name, _ = PAGES[node.kind]
            vault.place(node.id, folder, name(node))
    kernels = directory.read_directory(graph)
    for page in kernels.pages():
        vault.place(*page)
    concepts = _concept_pages(vault, graph, nodes)
    known = {node.id for node in nodes} | {home.ID, *(id_ for id_, _, _ in kernels.pages())}
    links = {id_: path.stem for id_, path in vault.by_id.items() if id_ in known}
    links |= {id_: path.stem for id_, path in concepts.items()}
    drawings = _drawings(vault, graph, nodes, draw)
    facts = Facts(graph, links, frozenset(row[0] for row in graph.rows("SELECT experiment FROM frontier")), drawings)
    for node in nodes:
        if node.kind in PAGES:
            vault.write(PAGES[node.kind][2](facts, node))
        elif node.id in concepts:
            content = concept_pages.concept(facts, node)
            vault.append(concepts[node.id], concept_pages.REGION, content or concept_pages.NOTHING, only_refresh=not content)
    for draft in kernels.drafts(facts):
        vault.write(draft)
    vault.write(home.home(facts))
    for id_ in sorted(vault.by_id):
        if id_.startswith(PREFIXES) and id_ not in known:
            drawing = drawing_path(vault.by_id[id_])
            vault.remove(id_)
            if id_ not in vault.by_id:
                put_drawing(vault, drawing, "")
    obsidian.write_views(vault)
    vault.flush()
    return WikiReport(str(vault.root), tuple(vault.written), tuple(vault.removed), vault.unchanged, tuple(vault.conflicts))


def _drawings(vault: Vault, graph: Graph, nodes: list[Node], draw: Draw | None) -> dict[str, str]:
    """File names of the drawings by node, each brought up to date; none without somebody who draws."""
    out: dict[str, str] = {}
    for node in nodes if draw is not None else ():
        if node.kind == "profile" and draw is not None:
            svg, path = draw(graph, node.id), drawing_path(vault.by_id[node.id])
            put_drawing(vault, path, svg)
            if svg:
                out[node.id] = path.name
    return out


def _nodes(graph: Graph) -> list[Node]:
    """Every node that has a page, in an order that gives each the same name on any machine."""
    rows = graph.rows(
        f"""SELECT {NODE_COLUMNS} FROM node n
            WHERE n.kind IN ('source', 'kernel', 'lane', 'hypothesis', 'experiment', 'profile', 'concept') ORDER BY n.kind, n.id"""
    )
    return [node_of(row) for row in rows]


def _concept_pages(vault: Vault, graph: Graph, nodes: list[Node]) -> dict[str, Path]:
    """The hand-written page of each concept: by the id in its frontmatter, else by its file name."""
    found: dict[str, Path] = {}
    for node in nodes:
        if node.kind != "concept":
            continue
        by_name = graph.workspace.concepts / f"{node.id.removeprefix('concept:')}.md"
        if node.id in vault.by_id:
            found[node.id] = vault.by_id[node.id]
        elif "/" not in node.id and by_name.is_file():
            found[node.id] = by_name
    return found
