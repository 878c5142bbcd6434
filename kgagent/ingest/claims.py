"""Rows of kernel catalogues as claims, joined to ingested kernels where their source is in the graph, kept as kernels where it isn't.

Joined anew after every ingest: a kernel may have come, moved or gone since the catalogue was read.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from kgagent.graph import Graph, NewEdge, NewNode
from kgagent.graph.words import split_identifier
from kgagent.ingest.modules import unpack

MADE_BY = "ingest"
BACKENDS = (("mosaic_gpu", ("mosaic gpu", "mosaic_gpu", "mgpu")), ("mosaic_tpu", ("mosaic tpu", "mosaic_tpu", "tpu", "mosaic")), ("triton", ("triton",)))


def join_catalogues(graph: Graph) -> None:
    """Make the claims of all ingested catalogues say what the graph now knows."""
    files = graph.rows(
        """SELECT n.key, n.id, s.id, f.facts FROM node n JOIN file f ON f.key = n.key JOIN node s ON s.key = f.source
           WHERE n.kind = 'file' AND n.made_by = 'ingest' AND json_extract(n.data, '$.catalogue') > 0 ORDER BY n.id"""
    )
    for key, id_, source, facts in files:
        graph.execute("DELETE FROM node WHERE file = ? AND kind IN ('claim', 'kernel') AND made_by = 'ingest'", key)
        for line, row in unpack(facts)["catalogue"]:
            put_row(graph, id_, source, int(line), row)


def put_row(graph: Graph, file: str, source: str, line: int, row: dict[str, str]) -> None:
    place = f"{file.removeprefix('file:')}#L{line}"
    kernel, how = joined(graph, row)
    if kernel is None:
        kernel, how = f"kernel:catalogue/{place}", "unresolved"
        data = {**row, "form": "catalogue", "backend": backend_of(row.get("backend", ""))}
        words = split_identifier(" ".join((row["name"], row.get("family", ""), row["path"])))
        graph.put_nodes([NewNode(kernel, "kernel", row["name"], MADE_BY, row.get("claim", ""), words, source, file, line, line, data)])
    text = row.get("claim") or f"{row['name']} is listed as {row.get('stability') or row.get('backend') or 'a kernel'}"
    claim = f"claim:catalogue/{place}"
    graph.put_nodes([NewNode(claim, "claim", row["name"], MADE_BY, text, None, source, file, line, line, dict(row))])
    graph.insert("claim", key=graph.key(claim), text=text, status="sourced", cited=f"{file.removeprefix('file:')}:{line}")
    graph.put_edges([NewEdge(claim, "mentions", kernel, MADE_BY, how, file, line), NewEdge(claim, "based_on", source, MADE_BY, "exact", file, line)])


def joined(graph: Graph, row: dict[str, str]) -> tuple[str | None, str]:
    """The ingested kernel a row means: launched in a file of that path, with that name for its body, wrapper or launch."""
    path = PurePosixPath(row["path"].partition("#")[0].partition(":")[0])
    rows: list[tuple[Any, ...]] = graph.rows(
        """SELECT n.id, n.name, f.path, coalesce(b.name, ''), coalesce(w.name, '') FROM kernel k JOIN node n ON n.key = k.key
           JOIN file f ON f.key = k.launch_file LEFT JOIN node b ON b.key = k.body LEFT JOIN node w ON w.key = k.wrapper WHERE f.path LIKE ? ORDER BY n.id""",
        f"%{path.name}",
    )
    same_file = [each for each in rows if ends_alike(PurePosixPath(each[2]), path)]
    wanted = set(split_identifier(row["name"]).split())
    named = [each[0] for each in same_file if row["name"] in each[1:] or wanted <= set(split_identifier(" ".join((each[1], each[3], each[4]))).split())]
    if len(named) == 1:
        return named[0], "inferred"
    if not named and len(same_file) == 1:
        return same_file[0][0], "candidate"
    return None, ""


def ends_alike(ingested: PurePosixPath, listed: PurePosixPath) -> bool:
    """One path is the other's tail: catalogues count from a repository's root, ingest from the package's."""
    short, long = sorted((ingested.parts, listed.parts), key=len)
    return len(short) > 0 and long[-len(short) :] == short


def backend_of(text: str) -> str:
    lower = text.lower()
    return next((backend for backend, names in BACKENDS if any(name in lower for name in names)), "unresolved")
