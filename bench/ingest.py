"""Ingest speed, memory and size, beside the floor script on the same trees in the same run.

usage: python bench/ingest.py [--floor SCRIPT] [--json-only]     (installed jax, tokamax and flax are copied, then read and touched)
The last line is JSON: {"bench": "ingest", "figures": …, "bars": …}; exit 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from kgagent.graph import find, neighbors, open_graph
from kgagent.workspace import create_workspace

PACKAGES = ("jax", "tokamax", "flax")
FLOOR = Path(__file__).resolve().parents[2] / "shared" / "gold" / "ingest_floor.py"
REPEATS = 3
SAMPLE_S = 0.05
NODES, EDGES, HUBS = 300_000, 1_500_000, 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--floor", type=Path, default=FLOOR)
    parser.add_argument("--json-only", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kgagent-bench-") as folder:
        figures = measure(Path(folder), options.floor)
    bars = judge(figures)
    if not options.json_only:
        show(figures, bars)
    print(json.dumps({"bench": "ingest", "figures": figures, "bars": bars}))
    return 0 if all(bar["ok"] for bar in bars.values()) else 1


def measure(folder: Path, floor: Path) -> dict[str, float]:
    trees = folder / "trees"
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise SystemExit(f"{package} is not installed; this bench reads it")
        shutil.copytree(spec.submodule_search_locations[0], trees / package, ignore=shutil.ignore_patterns("__pycache__"))
    sources = [file for package in PACKAGES for file in (trees / package).rglob("*.py")]
    source_bytes = sum(file.stat().st_size for file in sources)
    figures: dict[str, float] = {"files": len(sources), "source_mb": round(source_bytes / 1e6, 2)}
    floor_s, full_s = [], []
    for repeat in range(REPEATS):  # alternating, so that both meet the same machine
        if floor.is_file():
            floor_s.append(floor_seconds(floor, trees))
        workspace = create_workspace(folder / f"ws{repeat}")
        full_s.append(command(workspace.root, trees)[0])
    weighed = create_workspace(folder / "weighed")  # reading a process's pages takes its core's time: never in a timed run
    figures["peak_pss_mb"] = round(command(weighed.root, trees, weigh=True)[1], 1)
    database = folder / f"ws{REPEATS - 1}" / "graph.db"
    figures["floor_s"] = round(min(floor_s), 2) if floor_s else 0.0
    figures["full_s"] = round(min(full_s), 2)
    figures["full_over_floor"] = round(min(full_s) / min(floor_s), 2) if floor_s else 0.0
    figures["database_mb"] = round(database_bytes(database) / 1e6, 1)
    figures["database_over_source"] = round(database_bytes(database) / source_bytes, 2)
    with sqlite3.connect(database) as db:
        for table in ("node", "edge", "kernel"):
            figures[f"{table}s"] = db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    root = folder / f"ws{REPEATS - 1}"
    figures["unchanged_s"] = round(min(command(root, trees)[0] for _ in range(REPEATS)), 2)
    figures["touched_s"] = round(min(touch_and_ingest(trees / "jax/_src/lax/lax.py", root, trees) for _ in range(REPEATS)), 2)
    figures |= synthetic(folder / "synthetic")
    return figures


def floor_seconds(script: Path, trees: Path) -> float:
    out = subprocess.run([sys.executable, str(script), "2", *(str(trees / p) for p in PACKAGES)], capture_output=True, text=True, check=True)
    return float(json.loads(out.stdout)["seconds"])


def command(workspace: Path, trees: Path, *, weigh: bool = False) -> tuple[float, float]:
    """(wall seconds, peak summed PSS in MB where it was weighed) of the whole command, its processes included."""
    argv = [sys.executable, "-m", "kgagent", "-w", str(workspace), "ingest", "--json", *(f"pkg:{p}" for p in PACKAGES)]
    peak = [0.0]
    started = time.perf_counter()
    process = subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(trees)}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    stop = threading.Event()
    sampler = threading.Thread(target=sample, args=(process.pid, peak, stop), daemon=True)
    if weigh:
        sampler.start()
    _, err = process.communicate()
    seconds = time.perf_counter() - started
    stop.set()
    if weigh:
        sampler.join()
    if process.returncode:
        raise SystemExit(f"kgagent ingest failed: {err.decode()}")
    return seconds, peak[0]


def sample(pid: int, peak: list[float], stop: threading.Event) -> None:
    while not stop.wait(SAMPLE_S):
        total = 0
        for each in (pid, *children(pid)):
            try:
                for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += int(line.split()[1])
            except OSError:
                continue
        peak[0] = max(peak[0], total / 1024)


def children(pid: int) -> list[int]:
    try:
        return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    except OSError:
        return []


def touch_and_ingest(file: Path, workspace: Path, trees: Path) -> float:
    file.write_bytes(file.read_bytes() + f"\n# touched {time.time_ns()}\n".encode())
    return command(workspace, trees)[0]


def database_bytes(database: Path) -> int:
    return sum(path.stat().st_size for path in database.parent.glob(database.name + "*"))


def synthetic(folder: Path) -> dict[str, float]:
    """Reads on a big graph with hubs: 2-hop neighbours, and words rare and common."""
    workspace = create_workspace(folder)
    chance = random.Random(7)
    words = [f"{a}{b}" for a in ("flash", "ring", "page", "tile", "mask", "norm", "gate", "rope", "scan", "shard") for b in range(300)]
    with open_graph(workspace, write=True) as graph:
        graph.db.execute("BEGIN")
        nodes = ((f"sym:m{i % 997}.{words[i % 3000]}_{i}", "symbol", f"{words[i % 3000]}_{i}", f"{words[i % 3000]} attention kernel") for i in range(NODES))
        graph.db.executemany("INSERT INTO node(id, kind, name, words, made_by) VALUES (?, ?, ?, ?, 'bench')", nodes)
        edges = ((chance.randint(1, NODES), chance.randint(1, HUBS) if i % 4 == 0 else chance.randint(1, NODES), i) for i in range(EDGES))
        graph.db.executemany("INSERT OR IGNORE INTO edge(src, type, dst, line, made_by) VALUES (?, 'calls', ?, ?, 'bench')", edges)
        graph.db.execute("COMMIT")
    with open_graph(workspace) as graph:
        near, rare, common = [], [], []
        for _ in range(200):
            id_ = graph.node_by_key(chance.randint(1, NODES)).id
            near.append(timed(lambda id_=id_: neighbors(graph, id_, hops=2)))
        for _ in range(100):
            word = words[chance.randrange(3000)]
            rare.append(timed(lambda word=word: find(graph, f"{word}_{chance.randrange(NODES)}")))
            common.append(timed(lambda: find(graph, chance.choice(("attention", "kernel", "attention kernel")))))
    return {"neighbors_p95_ms": p95_ms(near), "find_rare_p95_ms": p95_ms(rare), "find_common_p95_ms": p95_ms(common)}


def timed(call: object) -> float:
    started = time.perf_counter()
    call()  # type: ignore[operator]
    return time.perf_counter() - started


def p95_ms(seconds: list[float]) -> float:
    return round(statistics.quantiles(seconds, n=20)[-1] * 1e3, 2)


def judge(figures: dict[str, float]) -> dict[str, dict[str, object]]:
    limits = {
        "full_over_floor": 4.0, "peak_pss_mb": 400, "touched_s": 1.0, "unchanged_s": 0.4, "database_over_source": 4.0, "neighbors_p95_ms": 5.0,
        "find_rare_p95_ms": 50.0, "find_common_p95_ms": 50.0,
    }  # fmt: skip
    return {name: {"value": figures[name], "limit": limit, "ok": figures[name] <= limit} for name, limit in limits.items()}


def show(figures: dict[str, float], bars: dict[str, dict[str, object]]) -> None:
    for name, value in figures.items():
        bar = bars.get(name)
        note = f"  at most {bar['limit']}: {'ok' if bar['ok'] else 'MISSED'}" if bar else ""
        print(f"{name:24} {value:>12}{note}")


if __name__ == "__main__":
    sys.exit(main())
