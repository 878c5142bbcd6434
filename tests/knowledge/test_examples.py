"""Every shipped detector on a positive and a near miss, through a real link run over a graph of both.

Positives with a `source` are lines of that package file; where the package is installed they must still stand there.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from kgagent.graph import Graph, NewEdge, NewNode, open_graph
from kgagent.knowledge import link, load_concepts, shipped_concepts, sync_concepts
from kgagent.workspace import create_workspace

from .packages import package_file

EXAMPLES = tomllib.loads(Path(__file__).with_name("detector_examples.toml").read_text(encoding="utf-8"))
DETECTORS = {f"{concept.slug}/{detector.name}": (concept, detector) for concept in load_concepts(shipped_concepts()) for detector in concept.detectors}
Fired = dict[str, set[tuple[str, str]]]


def test_every_detector_has_examples_and_no_example_lacks_one() -> None:
    assert sorted(EXAMPLES) == sorted(DETECTORS)


@pytest.fixture(scope="module")
def fired(tmp_path_factory: pytest.TempPathFactory) -> Fired:
    """(concept slug/detector, yes or no) by the example's node."""
    workspace = create_workspace(tmp_path_factory.mktemp("examples"))
    for page in shipped_concepts().glob("*.md"):
        shutil.copy(page, workspace.concepts / page.name)
    with open_graph(workspace, write=True) as graph:
        for number, (name, example) in enumerate(sorted(EXAMPLES.items())):
            for which in ("yes", "no"):
                _put_example(graph, f"e{number:03}_{which}", DETECTORS[name][1].kind, example[which])
        sync_concepts(graph)
        report = link(graph)
        assert not report.problems
        found: Fired = {}
        for edge in graph.edges(type="mentions"):
            if edge.how == "detector":
                slug = edge.dst.removeprefix("concept:")
                labels = [f"{edge.data['kind']} {edge.data['detector']}", *edge.data.get("also", [])]
                found.setdefault(edge.src, set()).update((slug, label.split(" ", 1)[1]) for label in labels)
    return found


def _put_example(graph: Graph, name: str, kind: str, text: str) -> None:
    if kind == "hlo":
        opcode, *rest = text.split()
        fields = dict(part.split("=", 1) for part in rest)
        data = {"opcode": opcode, "kernel_name": fields.get("kernel", ""), "shape": fields.get("shape", "")}
        graph.put_nodes([NewNode(f"op:{name}", "op", name, "test", data=data)])
        return
    source, file, symbol = f"src:{name}", f"file:{name}/example.py", f"sym:{name}"
    code = f"called({text})" if kind == "symbol" else text
    body = code.encode()
    lines = body.count(b"\n") + 1
    graph.put_nodes([NewNode(source, "source", name, "test"), NewNode(file, "file", "example.py", "test")])
    graph.insert("source", key=graph.key(source), locator=name, root="/nowhere", revision="0", ingested_at="2026-01-01T00:00:00+00:00")
    sha = graph.objects.put(body, durable=False)
    graph.insert("file", key=graph.key(file), source=graph.key(source), path="example.py", sha=sha, bytes=len(body), mtime_ns=0, status="ok")
    graph.put_nodes([NewNode(symbol, "symbol", name, "test", source=source, file=file, line_start=1, line_end=lines)])
    if kind == "symbol":
        if graph.node(f"sym:{text}") is None:
            graph.put_nodes([NewNode(f"sym:{text}", "symbol", text.rsplit(".", 1)[-1], "test", data={"external": True})])
        graph.put_edges([NewEdge(symbol, "calls", f"sym:{text}", "test", "alias", file, 1)])


@pytest.mark.parametrize("number, name", list(enumerate(sorted(EXAMPLES))), ids=sorted(EXAMPLES))
def test_it_fires_on_one_and_not_on_the_other(fired: Fired, number: int, name: str) -> None:
    concept, detector = DETECTORS[name]
    prefix = "op:" if detector.kind == "hlo" else "sym:"
    place = (concept.slug, detector.name)
    assert place in fired.get(f"{prefix}e{number:03}_yes", set()), EXAMPLES[name]["yes"]
    assert place not in fired.get(f"{prefix}e{number:03}_no", set()), EXAMPLES[name]["no"]


def test_positives_stand_in_the_packages_they_name() -> None:
    texts: dict[Path, str] = {}
    unread: dict[str, str] = {}
    for name, example in EXAMPLES.items():
        if "source" not in example:
            continue
        path = package_file(example["source"])
        if isinstance(path, Path):
            text = texts.setdefault(path, " ".join(path.read_text(encoding="utf-8").split()))
            assert " ".join(example["yes"].split()) in text, json.dumps({name: example})
        else:
            unread[example["source"].partition("/")[0]] = path
    if unread.keys() & {"jax", "tokamax"}:  # most stand in these two
        pytest.skip(f"{len(texts)} files hold what they should; not checked: {'; '.join(unread.values())}")
    assert len(texts) > 20
