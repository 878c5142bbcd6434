"""The mirror on disk: what it writes, what it never touches, and that a second render is silent."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest
import yaml
from graphs import AOT_CANDIDATE, KERNEL, Built, build, config, experiment, hypothesis

from kgagent.errors import StorageError
from kgagent.frontmatter import parse_page
from kgagent.graph import NewEdge, NewNode
from kgagent.wiki import WikiReport, render

CONCEPT = """---
id: "concept:streaming-softmax"   # mine
aliases: [online softmax]
odd:   "  kept "
---
# Streaming softmax

My text,\twith  odd spacing. No newline at the end"""
KERNEL_PAGE = "kernels/jax-splash_attention_kernel-flash_attention_kernel.md"
EXPERIMENT_PAGE = "experiments/exp-attention-0002.md"


@pytest.fixture
def built(tmp_path: Path) -> Built:
    made = build(tmp_path)
    (made.workspace.concepts / "streaming-softmax.md").write_text(CONCEPT)
    return made


def mirror(built: Built) -> WikiReport:
    with built.open() as graph:
        return render(graph)


def snapshot(built: Built) -> dict[str, tuple[bytes, int]]:
    return {str(p): (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(built.workspace.wiki.rglob("*")) if p.is_file()}


def change(built: Built) -> None:
    """Something that changes the pages of the kernel, the lane and the home page."""
    with built.open(write=True) as graph, graph.transaction():
        kernel = graph.need(KERNEL)
        graph.put_nodes([NewNode(kernel.id, "kernel", kernel.name, "ingest", doc="a new sentence", line_start=37, line_end=41)])
        hypothesis(graph, config(graph, "eeee0001", {"impl": "chunked", "block_q": 64}), "impl=chunked")


def test_the_second_render_writes_nothing(built: Built) -> None:
    first = mirror(built)
    assert first.written and not first.conflicts
    before = snapshot(built)
    second = mirror(built)
    assert (second.written, second.removed, second.conflicts) == ((), (), ())
    assert snapshot(built) == before and second.unchanged >= 20


def test_every_kind_has_its_folder_and_basenames_are_unique_and_lowercase(built: Built) -> None:
    mirror(built)
    pages = [p for p in built.workspace.wiki.rglob("*.md") if not any(part.startswith(".") for part in p.parts)]
    assert {p.parent.name for p in pages} >= {"kernels", "lanes", "hypotheses", "experiments", "concepts", "sources", "profiles"}
    stems = [p.stem for p in pages]
    assert len(set(stems)) == len(stems) and all(re.fullmatch(r"[a-z0-9_-]+", stem) for stem in stems)
    assert (built.workspace.wiki / "kgagent.md").is_file()


def test_every_wikilink_leads_to_a_file(built: Built) -> None:
    mirror(built)
    wiki = built.workspace.wiki
    names = {p.stem for p in wiki.rglob("*.md")} | {p.name for p in wiki.rglob("*.base")}
    links = 0
    for path in wiki.rglob("*.md"):
        for target in re.findall(r"\[\[([^\]|\\]+)", path.read_text()):
            links += 1
            assert target in names, f"{path}: {target}"
    assert links > 30


def test_properties_are_flat_quoted_and_of_one_type_in_the_whole_vault(built: Built) -> None:
    mirror(built)
    types: dict[str, set[str]] = {}
    for path in built.workspace.wiki.rglob("*.md"):
        head = path.read_text().split("---\n")[1]
        for name, value in yaml.safe_load(head).items():
            types.setdefault(name, set()).add("number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__)
            assert isinstance(value, (str, int, float)) or all(isinstance(item, str) for item in value)
    assert all(len(found) == 1 for found in types.values()), types


def test_the_numbers_of_an_experiment_are_on_its_page(built: Built) -> None:
    mirror(built)
    text = (built.workspace.wiki / EXPERIMENT_PAGE).read_text()
    page = parse_page(text)
    assert (page.meta["verdict"], page.meta["speedup"], page.meta["frontier"], page.meta["device"]) == ("supported", "3.1", "yes", "cpu")
    for part in ("3.1x (3.04x to 3.16x)", "1.5%", "`block_q=256, impl=chunked`", "[[compile-attention-cpu-bbbb0001|", "`parity`"):
        assert part in text
    assert len(re.findall(r"`[0-9a-f]{64}`", text)) == 2, "both receipts"


def test_a_compile_page_says_what_went_and_came(built: Built) -> None:
    mirror(built)
    text = (built.workspace.wiki / "profiles" / "compile-attention-v6e-2x2-aaaa0001.md").read_text()
    went, came = text.split("## Went")[1].split("## Came")
    assert "lane-attention/reference.py:7" in went and "128.000 MiB" in went
    assert "splash_mha_fwd" in came and "predicted" in text


def test_a_concept_page_gets_one_region_at_its_end_and_keeps_every_byte(built: Built) -> None:
    mirror(built)
    path = built.workspace.concepts / "streaming-softmax.md"
    text = path.read_text()
    assert text.startswith(CONCEPT) and text.count("<!-- kg:begin graph ") == 1
    region = text[len(CONCEPT) :]
    assert "[[jax-splash_attention_kernel-flash_attention_kernel" in region or "flash_attention_kernel.body" in region
    assert "[[exp-attention-0002" in region
    with built.open(write=True) as graph:
        graph.execute("DELETE FROM edge WHERE dst = ?", graph.key("concept:streaming-softmax"))
    mirror(built)
    after = path.read_text()
    assert after.startswith(CONCEPT) and "Nothing in the graph is linked" in after


def test_what_a_person_adds_around_a_region_stays(built: Built) -> None:
    mirror(built)
    path = built.workspace.wiki / KERNEL_PAGE
    text = path.read_text()
    mine = (
        text.replace('tags:\n  - "kernel"\n', 'tags:\n  - kernel\n  - hot\nmy note: "x: y"\n', 1).replace("---\n<!--", "---\n\n> above\n\n<!--", 1)
        + "\n## Mine\n\nbelow"
    )
    path.write_text(mine)
    change(built)
    report = mirror(built)
    after = path.read_text()
    assert KERNEL_PAGE in report.written and not report.conflicts
    assert "a new sentence" in after and after.endswith("\n## Mine\n\nbelow") and "\n\n> above\n\n<!--" in after
    assert '  - kernel\n  - hot\nmy note: "x: y"\n' in after
    assert mirror(built).written == ()


def test_an_edited_region_is_kept_and_reported(built: Built) -> None:
    mirror(built)
    path = built.workspace.wiki / KERNEL_PAGE
    edited = path.read_text().replace("# flash", "# My flash")
    path.write_text(edited)
    change(built)
    report = mirror(built)
    assert path.read_text() == edited
    assert [(c.path, "was edited" in c.what) for c in report.conflicts] == [(KERNEL_PAGE, True)] and report.conflicts[0].hint
    path.write_text(re.sub(r"<!-- kg:begin.*kg:end page -->", "my text", edited, flags=re.DOTALL))
    assert not mirror(built).conflicts
    assert "my text" in path.read_text() and "a new sentence" in path.read_text(), "a deleted region is written anew beside what stayed"


def test_an_edited_property_is_kept_and_reported(built: Built) -> None:
    mirror(built)
    path = built.workspace.wiki / EXPERIMENT_PAGE
    edited = path.read_text().replace('verdict: "supported"', 'verdict: "refuted"')
    path.write_text(edited)
    report = mirror(built)
    assert path.read_text() == edited and [c.path for c in report.conflicts] == [EXPERIMENT_PAGE]


ADOPTED = [
    ("an id alone", 'id: "exp:attention/0002"\nmine: yes\n', True),
    ("the same value", 'id: "exp:attention/0002"\nverdict: supported\n', True),
    ("another value", 'id: "exp:attention/0002"\nverdict: unsure\n', False),
]


@pytest.mark.parametrize("name, head, adopted", ADOPTED, ids=[row[0] for row in ADOPTED])
def test_a_page_a_person_made_for_a_node_is_filled_but_not_changed(built: Built, name: str, head: str, adopted: bool) -> None:
    path = built.workspace.wiki / "my" / "run two.md"
    path.parent.mkdir(parents=True)
    path.write_text(f"---\n{head}---\nmine")
    report = mirror(built)
    text = path.read_text()
    assert text.startswith(f"---\n{head}") and "---\nmine\n\n<!-- kg:begin page" in text
    assert ("speedup: 3.1" in text) == adopted and bool(report.conflicts) != adopted
    assert mirror(built).written == ()


def test_requoted_properties_are_not_an_edit(built: Built) -> None:
    mirror(built)
    path = built.workspace.wiki / KERNEL_PAGE
    path.write_text(path.read_text().replace('kind: "kernel"', "kind: kernel").replace('backend: "mosaic_tpu"', "backend: mosaic_tpu"))
    assert mirror(built).written == () and mirror(built).conflicts == ()


def test_line_endings_of_an_editor_survive(built: Built) -> None:
    mirror(built)
    path = built.workspace.wiki / KERNEL_PAGE
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert mirror(built).written == ()
    change(built)
    assert not mirror(built).conflicts
    data = path.read_bytes()
    assert b"a new sentence" in data and data.count(b"\n") == data.count(b"\r\n")
    assert mirror(built).written == ()


def test_a_moved_and_renamed_page_is_followed(built: Built) -> None:
    mirror(built)
    wiki = built.workspace.wiki
    (wiki / "mine").mkdir()
    (wiki / KERNEL_PAGE).rename(wiki / "mine" / "my flash.md")
    report = mirror(built)
    assert not (wiki / KERNEL_PAGE).exists() and not report.conflicts
    assert "[[my flash\\|" in (wiki / "sources" / "src-jax.md").read_text()
    assert mirror(built).written == ()


def test_a_name_a_person_took_is_left_to_them(built: Built) -> None:
    mine = built.workspace.wiki / "notes" / "Lane-Attention.md"
    mine.parent.mkdir(parents=True)
    mine.write_text("my page")
    report = mirror(built)
    assert mine.read_text() == "my page" and not report.conflicts
    assert any(re.fullmatch(r"lanes/lane-attention-[0-9a-f]{6}\.md", path) for path in report.written)


def gone(built: Built) -> None:
    with built.open(write=True) as graph:
        graph.execute("DELETE FROM kernel WHERE key = ?", graph.key(KERNEL))
        graph.execute("DELETE FROM node WHERE id = ?", KERNEL)


def test_a_page_whose_node_is_gone_goes_when_it_was_all_ours(built: Built) -> None:
    mirror(built)
    gone(built)
    report = mirror(built)
    assert report.removed == (KERNEL_PAGE,) and not (built.workspace.wiki / KERNEL_PAGE).exists()


TOUCHES = [
    ("text", lambda text: text + "\nmy note\n"),
    ("region", lambda text: text.replace("# flash", "# My flash")),
    ("property", lambda text: text.replace("---\n<!--", "mine: 1\n---\n<!--")),
    ("tag", lambda text: text.replace('  - "kernel"\n', '  - "kernel"\n  - "hot"\n')),
]


@pytest.mark.parametrize("name, touch", TOUCHES, ids=[touch[0] for touch in TOUCHES])
def test_a_page_whose_node_is_gone_stays_when_a_person_touched_it(built: Built, name: str, touch) -> None:
    mirror(built)
    path = built.workspace.wiki / KERNEL_PAGE
    path.write_text(touch(path.read_text()))
    mine = path.read_bytes()
    gone(built)
    report = mirror(built)
    assert report.removed == () and path.read_bytes() == mine
    assert any(c.path == KERNEL_PAGE and "no longer in the graph" in c.what for c in report.conflicts)


BROKEN = [
    ("yaml", lambda data: data.replace(b'kind: "kernel"', b'kind: "kernel'), "isn't YAML"),
    ("fence", lambda data: data.replace(b"---\n<!--", b"<!--"), "never closed"),
    ("marker", lambda data: data.replace(b"<!-- kg:end page -->", b""), "never closed"),
    ("bytes", lambda data: data + b"\xff\xfe", "isn't UTF-8"),
]


@pytest.mark.parametrize("name, damage, said", BROKEN, ids=[broken[0] for broken in BROKEN])
def test_a_damaged_page_is_left_alone_and_reported(built: Built, name: str, damage, said: str) -> None:
    mirror(built)
    path = built.workspace.wiki / KERNEL_PAGE
    path.write_bytes(damage(path.read_bytes()))
    mine = path.read_bytes()
    change(built)
    report = mirror(built)
    assert path.read_bytes() == mine
    assert any(c.path == KERNEL_PAGE and said in c.what for c in report.conflicts)
    assert not any(written.startswith("kernels/") for written in report.written), "no second page beside the damaged one"


def test_a_copied_page_is_reported_and_not_written(built: Built) -> None:
    mirror(built)
    wiki = built.workspace.wiki
    copy = wiki / "z-copy.md"
    copy.write_bytes((wiki / KERNEL_PAGE).read_bytes())
    report = mirror(built)
    assert [c.path for c in report.conflicts] == ["z-copy.md"] and "same id" in report.conflicts[0].what


def test_views_and_colours_are_written_once(built: Built) -> None:
    mirror(built)
    wiki = built.workspace.wiki
    for name in ("hypotheses.base", "frontier.base", "kernels.base"):
        view = yaml.safe_load((wiki / name).read_text())
        assert view["filters"]["and"] and {v["type"] for v in view["views"]} == {"table"}
    groups = json.loads((wiki / ".obsidian" / "graph.json").read_text())["colorGroups"]
    assert {"query", "color"} == set(groups[0])
    (wiki / "frontier.base").write_text("views: []\n")
    (wiki / ".obsidian" / "graph.json").write_text("{}")
    mirror(built)
    assert (wiki / "frontier.base").read_text() == "views: []\n" and (wiki / ".obsidian" / "graph.json").read_text() == "{}"


def test_view_columns_are_properties_that_exist(built: Built) -> None:
    from kgagent.wiki.obsidian import VIEWS
    from kgagent.wiki.properties import OWN

    for text in VIEWS.values():
        for view in yaml.safe_load(text)["views"]:
            assert {name for name in view["order"] if not name.startswith("file.")} <= set(OWN)


ODD = ['| a [[b]] #c ^d %%e%% `f` "g"', "<!-- kg:end page -->", "---\nid: x", "ünïcode ワイ \u2028 \x07", "x" * 400, "con", "$a$ *b* _c_ <script>"]


@pytest.mark.parametrize("name", ODD)
def test_odd_names_never_break_a_page(built: Built, name: str) -> None:
    with built.open(write=True) as graph, graph.transaction():
        file = next(id_ for id_ in built.files if id_.startswith("file:jax/"))
        graph.put_nodes([NewNode(f"kernel:odd/{name}", "kernel", name, "ingest", doc=name, file=file)])
        graph.insert(
            "kernel", key=graph.key(f"kernel:odd/{name}"), api=name, backend="unresolved", backend_how="unresolved", launch_file=graph.key(file), launch_line=1,
            body_how="unresolved", body_text=name, grid=name,
        )  # fmt: skip
        graph.put_nodes([NewNode("knob:odd", "knob", name, "ingest", data={"default": name})])
        graph.put_edges([NewEdge("knob:odd", "tunes", f"kernel:odd/{name}", "ingest")])
    report = mirror(built)
    made = [path for path in report.written if path.startswith("kernels/odd")]
    assert len(made) == 1 and not report.conflicts
    page = parse_page((built.workspace.wiki / made[0]).read_text())
    assert page.meta["id"] == f"kernel:odd/{name}"
    assert mirror(built).written == ()


def test_hundreds_of_pages_take_two_seconds_at_most(built: Built) -> None:
    with built.open(write=True) as graph, graph.transaction():
        for number in range(200):
            knobs = config(graph, f"f{number:07d}", {"impl": "chunked", "block_q": number})
            experiment(graph, built, knobs, "impl=chunked", "supported", 1.5 + number / 100)
    started = time.process_time()  # the disk's own time depends on who else uses it
    first = mirror(built)
    took = time.process_time() - started
    assert len(first.written) > 400 and took < 2.0, took
    started = time.process_time()
    assert mirror(built).written == ()
    assert time.process_time() - started < 2.0


def test_a_full_disk_leaves_whole_pages(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror(built)
    before = snapshot(built)
    change(built)

    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError) as error:
        mirror(built)
    assert "No space left" in error.value.what and error.value.hint
    monkeypatch.undo()
    assert snapshot(built) == before, "no page changed and no temporary file stayed"


def test_the_fixture_reaches_every_section(built: Built) -> None:
    mirror(built)
    text = (built.workspace.wiki / KERNEL_PAGE).read_text()
    for head in ("## Tunables", "## Concepts", "## Called from", "## Seen in compiles"):
        assert head in text
    assert AOT_CANDIDATE.split("/")[-1] in text
