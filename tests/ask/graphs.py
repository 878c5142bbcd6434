"""A small graph with every kind of evidence a question meets, its rows put through the refusing triggers, its citations into real files."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from kgagent.graph import Graph, NewEdge, NewNode, open_graph
from kgagent.objects import canonical_json, sha256_hex
from kgagent.workspace import Workspace, create_workspace

SPLASH = '''"""Splash attention, cut down to the lines the graph points at."""
import dataclasses
import functools
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

DEFAULT_MASK_VALUE = -0.7 * 3.4e38


@dataclasses.dataclass(frozen=True)
class BlockSizes:
  block_q: int = 128
  block_kv: int = 128
  block_kv_compute: int | None = None


def flash_attention_kernel(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref):
  should_run = pl.program_id(2) >= 0

  @pl.when(should_run)
  def body():
    qk = jnp.dot(q_ref[...], k_ref[...].T)
    m_prev, l_prev = m_ref[...], l_ref[...]
    m_next = jnp.maximum(m_prev, qk.max(axis=-1))
    alpha = jnp.exp(m_prev - m_next)
    l_ref[...] = alpha * l_prev + jnp.exp(qk - m_next).sum(axis=-1)
    acc_ref[...] = acc_ref[...] * alpha + jnp.dot(jnp.exp(qk - m_next), v_ref[...])


def flash_attention_dkv_kernel(q_ref, k_ref, v_ref, dk_ref, dv_ref):
  dk_ref[...] = k_ref[...]


def _splash_attention_forward(mask_info, q, k, v, block_sizes):
  grid = (q.shape[0], 4, 4)
  return pl.pallas_call(
      flash_attention_kernel,
      grid=grid,
      out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
  )(q, k, v)


def make_splash_mha(mask, block_sizes):
  return functools.partial(_splash_attention_forward, mask, block_sizes=block_sizes)
'''
REFERENCE = '''"""Plain causal attention."""
import jax
import jax.numpy as jnp


def reference(q, k, v):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k)  # [batch, heads, q_len, kv_len]
    weights = jax.nn.softmax(scores, axis=-1)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, v)
'''
CANDIDATE = '''"""Ways to compute it."""
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel


def splash(q, k, v):
    return splash_attention_kernel.make_splash_mha(None, None)(q, k, v)


def chunked(q, k, v, block_q, block_kv):
    running_max = q.max()
    return running_max


def grouped(q, k, v):
    return q
'''
JAX = "jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel"
TOKAMAX = "tokamax._src.ops.experimental.tpu.splash_attention.splash_attention_kernel"
KERNEL = "kernel:" + JAX.replace(".", "/") + "/flash_attention_kernel"
TOKAMAX_KERNEL = "kernel:" + TOKAMAX.replace(".", "/") + "/flash_attention_kernel"
GATES = ("parity", "mechanism")
POINT = "b1_s2048"
CPU = "scope:attention/0c0c0c0c"
V6E = "scope:attention/6e6e6e6e"
AOT_CANDIDATE = "compile:attention/v6e:2x2/aaaa0001"
AOT_REFERENCE = "compile:attention/v6e:2x2/aaaa0000"


def line_of(text: str, part: str) -> int:
    """1-based line of the first occurrence."""
    return text[: text.index(part)].count("\n") + 1


@dataclass
class Built:
    """The workspace and what was filed in it."""

    workspace: Workspace
    files: dict[str, Path] = field(default_factory=dict)
    numbers: int = 0

    def open(self, *, write: bool = False) -> Graph:
        return open_graph(self.workspace, write=write)


def build(folder: Path, *, preflight: bool = True, trials: bool = True, tpu_trial: bool = False, lane: str | None = "attention") -> Built:
    """The whole graph; the switches leave parts out."""
    built = Built(create_workspace(folder / "ws", lane=lane))
    with built.open(write=True) as graph, graph.transaction():
        _sources(graph, built, folder)
        _concepts(graph)
        _lane(graph)
        if preflight:
            _preflight(graph)
        if trials:
            _trials(graph, built)
        if tpu_trial:
            experiment(
                graph, built, config(graph, "aaaa0001", {"impl": "splash", "block_q": 512}), "impl=splash", "supported", 6.1, scope=V6E, device="TPU v6 lite"
            )
    return built


def _source(graph: Graph, built: Built, root: Path, name: str, files: dict[str, str]) -> None:
    graph.put_nodes([NewNode(f"src:{name}", "source", name, "ingest")])
    graph.insert("source", key=graph.key(f"src:{name}"), locator=f"pkg:{name}", root=str(root), revision="1.0", ingested_at="2026-01-01T00:00:00Z")
    for relative, text in files.items():
        path = root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        id_ = f"file:{name}/{relative}"
        built.files[id_] = path
        graph.put_nodes([NewNode(id_, "file", path.name, "ingest", source=f"src:{name}")])
        graph.insert(
            "file", key=graph.key(id_), source=graph.key(f"src:{name}"), path=relative, sha=sha256_hex(text.encode()), bytes=len(text),
            mtime_ns=path.stat().st_mtime_ns, status="ok",
        )  # fmt: skip


def symbol(graph: Graph, name: str, file: str, text: str, start: str, end: str | None = None) -> str:
    """A symbol from the line holding `start` to the one holding `end`."""
    first = line_of(text, start)
    last = line_of(text, end) if end else first
    id_ = f"sym:{name}"
    graph.put_nodes(
        [
            NewNode(
                id_, "symbol", name.rsplit(".", 1)[-1], "ingest", source=file.replace("file:", "src:").split("/")[0], file=file, line_start=first, line_end=last
            )
        ]
    )
    graph.put_edges([NewEdge(file, "defines", id_, "ingest", file=file, line=first)])
    return id_


def _sources(graph: Graph, built: Built, folder: Path) -> None:
    for package, dotted in (("jax", JAX), ("tokamax", TOKAMAX)):
        relative = dotted.replace(".", "/") + ".py"
        _source(graph, built, folder / "site" / package, package, {relative: SPLASH})
        file = f"file:{package}/{relative}"
        body = symbol(graph, f"{dotted}.flash_attention_kernel", file, SPLASH, "def flash_attention_kernel", "acc_ref[...] = acc_ref")
        inner = symbol(graph, f"{dotted}.flash_attention_kernel.body", file, SPLASH, "def body", "acc_ref[...] = acc_ref")
        dkv = symbol(graph, f"{dotted}.flash_attention_dkv_kernel", file, SPLASH, "def flash_attention_dkv_kernel")
        wrapper = symbol(graph, f"{dotted}._splash_attention_forward", file, SPLASH, "def _splash_attention_forward", ")(q, k, v)")
        api = symbol(graph, f"{dotted}.make_splash_mha", file, SPLASH, "def make_splash_mha", "return functools")
        graph.put_edges(
            [
                NewEdge(body, "defines", inner, "ingest"),
                NewEdge(api, "calls", wrapper, "ingest", how="inferred", file=file, line=line_of(SPLASH, "return functools")),
            ]
        )
        launch = line_of(SPLASH, "pl.pallas_call")
        for function, backend in ((body, "mosaic_tpu"), (dkv, "mosaic_tpu")):
            kernel = "kernel:" + function.removeprefix("sym:").replace(".", "/")
            graph.put_nodes(
                [NewNode(kernel, "kernel", function.rsplit(".", 1)[-1], "ingest", source=f"src:{package}", file=file, line_start=launch, line_end=launch + 4)]
            )
            graph.insert(
                "kernel", key=graph.key(kernel), api="jax.experimental.pallas.pallas_call", backend=backend, backend_how="exact", launch_file=graph.key(file),
                launch_line=launch, wrapper=graph.key(wrapper), body=graph.key(function), body_how="exact", grid="grid",
            )  # fmt: skip
            graph.put_edges([NewEdge(function, "implements", kernel, "ingest"), NewEdge(wrapper, "wraps", kernel, "ingest", file=file, line=launch)])
            for knob in ("block_q", "block_kv", "block_kv_compute"):
                id_ = f"knob:{dotted}.BlockSizes.{knob}"
                at = line_of(SPLASH, f"  {knob}:")
                graph.put_nodes([NewNode(id_, "knob", knob, "ingest", source=f"src:{package}", file=file, line_start=at, line_end=at, data={"default": "128"})])
                graph.put_edges([NewEdge(id_, "tunes", kernel, "ingest")])
    files = {"reference.py": REFERENCE, "candidate.py": CANDIDATE}
    _source(graph, built, folder / "ws" / "lanes" / "attention", "lane-attention", files)
    symbol(graph, "lanes.attention.reference.reference", "file:lane-attention/reference.py", REFERENCE, "def reference", 'einsum("bhqk,bhkd')
    file = "file:lane-attention/candidate.py"
    for name in ("splash", "chunked", "grouped"):
        symbol(graph, f"lanes.attention.candidate.{name}", file, CANDIDATE, f"def {name}")
    graph.put_edges(
        [
            NewEdge(
                "sym:lanes.attention.candidate.splash", "calls", f"sym:{JAX}.make_splash_mha", "ingest", file=file, line=line_of(CANDIDATE, "make_splash_mha")
            )
        ]
    )


def _concepts(graph: Graph) -> None:
    pages = {
        "streaming-softmax": ("Streaming softmax", ["online softmax"],
            "Keeps a running maximum and sum, so that no row of scores is ever stored whole. It costs a rescale."),
        "block-sparse-attention": ("Block-sparse attention", ["splash", "splash attention"],
            "Skips tiles of the score matrix that the mask empties. Half of a causal one is empty."),
        "grouped-query-attention": ("Grouped-query attention", ["GQA"],
            "Several query heads read one key and value head. Keeping the group in the einsum saves repeating them."),
    }  # fmt: skip
    graph.put_nodes(
        [NewNode(f"concept:{slug}", "concept", name, "knowledge", doc=doc, data={"aliases": aliases}) for slug, (name, aliases, doc) in pages.items()]
    )
    graph.put_nodes([NewNode(f"lever:{slug}", "lever", slug, "knowledge") for slug in ("skip-masked-blocks", "raise-vmem-limit", "float32-accumulation")])
    for package, dotted in (("jax", JAX), ("tokamax", TOKAMAX)):
        file = f"file:{package}/" + dotted.replace(".", "/") + ".py"
        for concept, part in (
            ("streaming-softmax", "m_next = jnp.maximum"), ("streaming-softmax", "alpha = jnp.exp"), ("streaming-softmax", "l_ref[...] = alpha"),
            ("block-sparse-attention", "@pl.when(should_run)"),
        ):  # fmt: skip
            inner = ".body" if concept == "streaming-softmax" else ""
            edge = NewEdge(
                f"sym:{dotted}.flash_attention_kernel{inner}", "mentions", f"concept:{concept}", "knowledge", how="detector", file=file,
                line=line_of(SPLASH, part),
                data={"detector": "symbol", "text": part},
            )  # fmt: skip
            graph.put_edges([edge])
    graph.put_edges(
        [
            NewEdge("concept:block-sparse-attention", "enables", "lever:skip-masked-blocks", "knowledge"),
            NewEdge("lever:skip-masked-blocks", "requires", "lever:raise-vmem-limit", "knowledge", data={"scope": "block_kv above 1024"}),
            NewEdge("lever:skip-masked-blocks", "conflicts_with", "lever:float32-accumulation", "knowledge"),
        ]
    )
    graph.put_nodes([NewNode("claim:splash-skips", "claim", "splash skips half", "knowledge")])
    graph.insert(
        "claim", key=graph.key("claim:splash-skips"), text="A causal mask empties almost half of the tiles.", status="sourced", cited="the kernel's mask tests"
    )
    graph.put_edges(
        [
            NewEdge("claim:splash-skips", "supports", "concept:block-sparse-attention", "knowledge"),
            NewEdge("claim:splash-skips", "based_on", "src:jax", "knowledge"),
        ]
    )


def _lane(graph: Graph) -> None:
    lane = "lane:attention"
    graph.put_nodes([NewNode(lane, "lane", "attention", "lanes", doc="causal GQA forward")])
    graph.insert("lane", key=graph.key(lane), kind="kernel", metric="step_ms", unit="ms", direction="min", digest="d" * 64)
    for gate in GATES:
        graph.insert("lane_gate", lane=graph.key(lane), gate=gate, mandatory=1)
    for id_, chip, topology in ((CPU, "cpu", "cpu"), (V6E, "v6e", "v6e:2x2")):
        graph.put_nodes([NewNode(id_, "scope", f"attention on {chip}", "lanes")])
        problem = json.dumps({"points": {POINT: {"batch": 1, "seq": 2048, "heads": 8}}})
        graph.insert(
            "scope", key=graph.key(id_), lane=graph.key(lane), digest=id_, chip=chip, topology=topology, problem=problem, metric="step_ms", jax="0.12.0",
            libtpu="0.0.30",
            harness="1",
        )  # fmt: skip
    for setting in ("impl=einsum", "impl=chunked", "impl=splash", "gqa=grouped", "block_q=256", "block_q=512"):
        lever = f"lever:attention/{setting}"
        graph.put_nodes([NewNode(lever, "lever", setting, "lanes")])
        graph.put_edges([NewEdge(lever, "within", lane, "lanes")])
    pairs = (("impl=splash", "block-sparse-attention"), ("impl=chunked", "streaming-softmax"), ("gqa=grouped", "grouped-query-attention"))
    graph.put_edges([NewEdge(f"lever:attention/{setting}", "tests_concept", f"concept:{concept}", "lanes") for setting, concept in pairs])
    uses = (("impl=splash", "splash"), ("impl=chunked", "chunked"), ("gqa=grouped", "grouped"))
    graph.put_edges([NewEdge(f"lever:attention/{setting}", "uses", f"sym:lanes.attention.candidate.{name}", "lanes") for setting, name in uses])


def config(graph: Graph, digest: str, knobs: dict[str, object]) -> str:
    """A configuration node and row, made once."""
    id_ = f"config:attention/{digest}"
    if graph.node(id_) is None:
        graph.put_nodes([NewNode(id_, "configuration", digest, "lanes")])
        graph.insert("configuration", key=graph.key(id_), lane=graph.key("lane:attention"), digest=digest, knobs=json.dumps(knobs), code_sha="c" * 64)
    return id_


def compiled(graph: Graph, id_: str, configuration: str, ops: dict[str, tuple[str, str, int, str]], *, against: str | None = None, **data: object) -> None:
    """A compile with its ops: name -> (opcode, shape, bytes, `file#Lline` or '')."""
    graph.put_nodes([NewNode(id_, "profile", id_.removeprefix("compile:"), "compiler", data={"status": "ok", **data})])
    graph.put_edges([NewEdge(id_, "within", "lane:attention", "compiler"), NewEdge(id_, "uses", configuration, "compiler")])
    for name, (opcode, shape, size, place) in ops.items():
        op = f"op:{id_.removeprefix('compile:')}/{name}"
        extra = {"kernel_name": name} if opcode == "custom-call" else {}
        graph.put_nodes([NewNode(op, "op", name, "compiler", data={"opcode": opcode, "shape": shape, "bytes": size, **extra})])
        graph.put_edges([NewEdge(id_, "has_op", op, "compiler")])
        if place:
            path, _, number = place.rpartition("#L")
            graph.put_nodes([NewNode(f"line:{place}", "line", place.rsplit("/", 1)[-1], "compiler", line_start=int(number), line_end=int(number))])
            graph.put_edges([NewEdge(op, "from_line", f"line:{place}", "compiler")])
            inside = "sym:lanes.attention.reference.reference" if path.endswith("reference.py") else f"sym:{JAX}._splash_attention_forward"
            graph.put_edges([NewEdge(f"line:{place}", "within", inside, "compiler")])
        if opcode == "custom-call":
            graph.put_edges([NewEdge(op, "lowered_from", KERNEL, "compiler")])
    if against:
        graph.put_edges([NewEdge(id_, "differs_from", against, "compiler")])
        mine = {name: op[:2] for name, op in ops.items()}
        theirs = {edge.dst.rsplit("/", 1)[-1]: edge.dst for edge in graph.edges(src=against, type="has_op")}
        graph.put_edges([NewEdge(id_, "removes", op, "compiler") for name, op in theirs.items() if name not in mine])
        graph.put_edges([NewEdge(id_, "adds", f"op:{id_.removeprefix('compile:')}/{name}", "compiler") for name in mine if name not in theirs])


def reference_ops(built_path: str) -> dict[str, tuple[str, str, int, str]]:
    """What plain attention compiles to: score matrices, with their lines."""
    scores, softmax = line_of(REFERENCE, "scores ="), line_of(REFERENCE, "weights =")
    return {
        "fusion.1": ("fusion", "f32[1,8,2048,2048]{3,2,1,0}", 134217728, f"{built_path}#L{scores}"),
        "fusion.2": ("fusion", "f32[1,8,2048,2048]{3,2,1,0}", 134217728, f"{built_path}#L{softmax}"),
        "copy.1": ("copy", "bf16[1,8,2048,128]{3,2,1,0}", 4194304, ""),
        "parameter.1": ("parameter", "bf16[1,8,2048,128]{3,2,1,0}", 4194304, ""),
    }


def _preflight(graph: Graph) -> None:
    reference = str(graph.node("file:lane-attention/reference.py").path)
    tpu = {"topology": "v6e:2x2", "label": "predicted", "jax": "0.12.0", "libtpu": "0.0.30"}
    compiled(graph, AOT_REFERENCE, config(graph, "aaaa0000", {"impl": "einsum"}), reference_ops(reference), memory={"temp_bytes": 268435456}, **tpu)
    call = ("custom-call", "bf16[1,8,2048,128]{3,2,1,0}", 4194304, f"{JAX.replace('.', '/')}.py#L{line_of(SPLASH, 'pl.pallas_call')}")
    ops = {"splash_mha_fwd": call, "parameter.1": reference_ops("")["parameter.1"]}
    candidate = config(graph, "aaaa0001", {"impl": "splash", "block_q": 512})
    compiled(graph, AOT_CANDIDATE, candidate, ops, against=AOT_REFERENCE, memory={"temp_bytes": 2097152}, **tpu)


def hypothesis(graph: Graph, configuration: str, setting: str, *, scope: str = CPU, status: str = "open", new: str = "") -> str:
    """A hypothesis about one lever; the digest is the configuration's and the scope's."""
    id_ = f"hyp:attention/{sha256_hex(configuration + scope + new)[:8]}"
    graph.put_nodes([NewNode(id_, "hypothesis", f"{setting} is faster", "planner")])
    graph.insert(
        "hypothesis", key=graph.key(id_), lane=graph.key("lane:attention"), scope=graph.key(scope), configuration=graph.key(configuration),
        lever=f"lever:attention/{setting}",
        statement=f"{setting} is faster", mechanism="less memory traffic", predicted_signal="step_ms falls", falsification="step_ms does not fall",
        origin="knob",
        expected_gain=1.5, status=status, whats_new=new, created_at="2026-01-01T00:00:00Z",
    )  # fmt: skip
    graph.put_edges(
        [
            NewEdge(id_, "within", "lane:attention", "planner"), NewEdge(id_, "uses", f"lever:attention/{setting}", "planner"),
            NewEdge(id_, "at", scope, "planner"), NewEdge(id_, "based_on", configuration, "planner"),
        ]
    )  # fmt: skip
    return id_


def experiment(
    graph: Graph, built: Built, configuration: str, setting: str, verdict: str, speedup: float, *, scope: str = CPU, device: str = "cpu",
    outcome: str = "completed",
    baseline: str | None = None, profile: str | None = None,
) -> str:  # fmt: skip
    """One filed experiment with receipts, gates, measurements, comparison and verdict, as an executor files it."""
    built.numbers += 1
    name = f"attention/{built.numbers:04d}"
    id_ = f"exp:{name}"
    about = hypothesis(graph, configuration, setting, scope=scope, status="done", new=f"run {built.numbers}")
    graph.put_nodes([NewNode(id_, "experiment", f"{setting} {verdict}", "executor")])
    key = graph.key(id_)
    graph.insert(
        "experiment", key=key, lane=graph.key("lane:attention"), scope=graph.key(scope), configuration=graph.key(configuration), hypothesis=graph.key(about),
        role="trial", baseline=graph.key(baseline) if baseline else None, origin="local", backend="cpu", started_at="2026-01-01T00:00:00Z",
        finished_at="2026-01-01T00:01:00Z", outcome=outcome, detail="" if outcome == "completed" else "killed after 60 s",
    )  # fmt: skip
    passed = "pass" if verdict != "invalid" else "fail"
    body = canonical_json({"prev": "", "step": "gates", "gates": [{"name": gate, "result": passed} for gate in GATES], "n": built.numbers})
    first = sha256_hex(body)
    graph.insert("receipt", sha=first, experiment=key, seq=0, prev="", step="gates", body=body)
    for gate in GATES:
        graph.insert("gate", experiment=key, name=gate, result=passed, detail="checked", evidence="{}", receipt=first)
    verdict_node = f"verdict:{name}"
    graph.put_nodes([NewNode(verdict_node, "verdict", verdict, "executor")])
    edges = [NewEdge(id_, "produced", verdict_node, "executor")]
    if outcome == "completed":
        legs = []
        for leg, value in (("candidate", 10.0 / speedup), ("baseline", 10.0)):
            node = f"meas:{name}/{POINT}-{leg}"
            graph.put_nodes([NewNode(node, "measurement", POINT, "executor")])
            legs.append(
                graph.insert(
                    "measurement", key=graph.key(node), experiment=key, leg=leg, scope=graph.key(scope), op_point=POINT, metric="step_ms", unit="ms",
                    statistic="median",
                    value=value, samples=24, timer="perf_counter", device=device,
                )
            )  # fmt: skip
            edges.append(NewEdge(verdict_node, "based_on", node, "executor"))
        graph.insert(
            "comparison", experiment=key, candidate=legs[0], baseline=legs[1], speedup=speedup, ci_low=speedup * 0.98, ci_high=speedup * 1.02, 
            noise_floor_frac=0.015,
            pairs=24, speedup_vs_reference=speedup,
        )  # fmt: skip
    second = canonical_json({"prev": first, "step": "verdict", "verdict": verdict})
    graph.insert("receipt", sha=sha256_hex(second), experiment=key, seq=1, prev=first, step="verdict", body=second)
    graph.insert(
        "verdict",
        experiment=key,
        verdict=verdict,
        kind="measured",
        reason="by rule",
        inputs="{}",
        receipt=sha256_hex(second),
        decided_at="2026-01-01T00:01:00Z",
    )
    graph.execute("UPDATE experiment SET filed = 1 WHERE key = ?", key)
    edges += [NewEdge(id_, "based_on", about, "executor"), NewEdge(id_, "at", scope, "executor"), NewEdge(id_, "uses", configuration, "executor")]
    edges.append(NewEdge(id_, "within", "lane:attention", "executor"))
    if verdict in ("supported", "refuted"):
        edges.append(NewEdge(id_, "supports" if verdict == "supported" else "refutes", about, "executor"))
    if profile:
        edges.append(NewEdge(id_, "produced", profile, "executor"))
    graph.put_edges(edges)
    return id_


def _trials(graph: Graph, built: Built) -> None:
    reference = str(graph.node("file:lane-attention/reference.py").path)
    einsum = config(graph, "aaaa0000", {"impl": "einsum"})
    cpu = {"label": "cpu", "topology": "cpu"}
    compiled(graph, "compile:attention/cpu/aaaa0000", einsum, reference_ops(reference), memory={"temp_bytes": 268435456}, **cpu)
    chunked = config(graph, "bbbb0001", {"impl": "chunked", "block_q": 256})
    ops = {"while.1": ("while", "(f32[1,8,256,256]{3,2,1,0})", 2097152, ""), "parameter.1": reference_ops("")["parameter.1"]}
    compiled(graph, "compile:attention/cpu/bbbb0001", chunked, ops, against="compile:attention/cpu/aaaa0000", memory={"temp_bytes": 4194304}, **cpu)
    first = experiment(graph, built, einsum, "impl=einsum", "inconclusive", 1.0)
    experiment(graph, built, chunked, "impl=chunked", "supported", 3.1, baseline=first, profile="compile:attention/cpu/bbbb0001")
    splash = config(graph, "bbbb0002", {"impl": "splash", "block_q": 256})
    compiled(graph, "compile:attention/cpu/bbbb0002", splash, ops, against="compile:attention/cpu/aaaa0000", interpret=True, **cpu)
    experiment(graph, built, splash, "impl=splash", "refuted", 0.04, baseline=first, profile="compile:attention/cpu/bbbb0002")
    experiment(graph, built, config(graph, "bbbb0003", {"impl": "einsum", "gqa": "grouped"}), "gqa=grouped", "supported", 1.6, baseline=first)
    experiment(graph, built, config(graph, "bbbb0004", {"impl": "splash", "block_q": 64}), "impl=splash", "invalid", 1.0, outcome="timeout")
    hypothesis(graph, config(graph, "bbbb0005", {"impl": "splash", "block_q": 1024}), "impl=splash")


def pad(graph: Graph, count: int) -> None:
    """Unrelated symbols and calls, for size."""
    graph.put_nodes([NewNode(f"sym:pad.module{i % 500}.function_{i}", "symbol", f"function_{i}", "ingest", doc="does a thing") for i in range(count)])
    graph.put_edges(
        [NewEdge(f"sym:pad.module{i % 500}.function_{i}", "calls", f"sym:pad.module{(i + 1) % 500}.function_{i + 1}", "ingest") for i in range(count - 1)]
    )
