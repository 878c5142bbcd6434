"""Evidence in numbers: how fast HLO is read, what a fixture profile holds, how much time reaches a line.

Run: python bench/evidence.py [--shared FOLDER]. Prints a table, then one JSON line; exit 1 on a missed bar.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kgagent.compiler import aot_compile, compiler_status  # noqa: E402
from kgagent.evidence.diff import diff  # noqa: E402
from kgagent.evidence.flame import Box, flame  # noqa: E402
from kgagent.evidence.gap import by_class, by_line, gap  # noqa: E402
from kgagent.evidence.hlo import Module, parse_hlo  # noqa: E402
from kgagent.evidence.hlo_proto import modules_in_trace  # noqa: E402
from kgagent.evidence.llo import dump_files, read_schedule  # noqa: E402
from kgagent.evidence.mosaic import body_of  # noqa: E402
from kgagent.evidence.mosaic_dump import mosaic_files, read_program  # noqa: E402
from kgagent.evidence.weigh import weigh_module, weigh_profile  # noqa: E402
from kgagent.evidence.xplane import read_profile, trace_files  # noqa: E402

TARGET_MB = 20
MEASURE = """
import sys, time
from pathlib import Path
from kgagent.evidence.hlo import read_hlo

def resident_kb(field):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(field))

path, base, seconds, peak = Path(sys.argv[1]), resident_kb("VmRSS"), [], 0
for _ in range(int(sys.argv[2])):
    module = None
    started = time.process_time()
    module = read_hlo(path)
    seconds.append(time.process_time() - started)
    peak = peak or resident_kb("VmHWM")
started = time.process_time()
for _, i in module.instructions():
    i.operands, i.called, i.attributes, module.own_frames(i), i.output_bytes
print(min(seconds), (peak - base) * 1024, module.instruction_count, module.unread, time.process_time() - started)
"""


class Bars:
    """Figures and the limits they are held to."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}
        self.bars: dict[str, dict[str, Any]] = {}

    def figure(self, name: str, value: Any) -> None:
        self.figures[name] = value

    def bar(self, name: str, value: Any, limit: Any, *, at_least: bool = True, exact: bool = False) -> None:
        ok = value == limit if exact else (value >= limit if at_least else value <= limit)
        self.figures[name] = value
        self.bars[name] = {"value": value, "limit": limit, "ok": bool(ok)}

    def finish(self) -> int:
        width = max(len(name) for name in self.figures)
        for name, value in self.figures.items():
            bar = self.bars.get(name)
            shown = f"{value:.4g}" if isinstance(value, float) else str(value)
            print(f"{name:<{width}}  {shown:>16}  " + (f"limit {bar['limit']}  {'ok' if bar['ok'] else 'MISSED'}" if bar else ""))
        print(json.dumps({"bench": "evidence", "figures": self.figures, "bars": self.bars}))
        return 0 if all(bar["ok"] for bar in self.bars.values()) else 1


def grown(text: str, size: int) -> str:
    """A real module with its computations repeated under new names until it has the size."""
    at = text.index("\nENTRY ")
    start = text.rindex("\n\n\n", 0, text.index("{\n  ") + 1)
    head, body = text[:start], text[start:at]
    old = r"(%[\w.\-]+)" if "%" in body else r"(?m)((?:to_apply|calls|body|condition)=[\w.\-]+|^[\w.\-]+(?= \{$))"
    copies = [re.sub(old, rf"\g<1>.x{n}", body) for n in range(1 + size // max(1, len(body)))]
    return head + "".join(copies) + text[start:]


def reading_speed(bars: Bars, name: str, text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.txt"
        path.write_text(grown(text, TARGET_MB * 1_000_000))
        size = path.stat().st_size
        done = subprocess.run([sys.executable, "-c", MEASURE, str(path), "3"], capture_output=True, text=True, check=True, cwd=ROOT)
    seconds, peak, count, unread, parts = (float(part) for part in done.stdout.split())
    bars.figure(f"{name}: file MB", size / 1e6)
    bars.figure(f"{name}: instructions", int(count))
    bars.bar(f"{name}: read MB/s", size / 1e6 / seconds, 20.0)
    bars.bar(f"{name}: read and every part of every line MB/s", size / 1e6 / (seconds + parts), 10.0)
    bars.bar(f"{name}: memory / file", peak / size, 6.0, at_least=False)
    bars.bar(f"{name}: lines not understood", int(unread), 0, exact=True)


def hlo_text(bars: Bars) -> None:
    from tests.evidence import programs

    programs.LAYERS = 8
    reading_speed(bars, "CPU train step", programs.train_step_hlo(False, True))
    reading_speed(bars, "before optimisation", programs.train_step_hlo(False, False))
    programs.train_step_hlo.cache_clear()
    programs.LAYERS = 4


def fixture(bars: Bars, folder: Path) -> None:
    profile = read_profile(folder / "logdir")
    modules: dict[str, list[Module]] = defaultdict(list)
    for name, text in modules_in_trace(trace_files(folder / "logdir")[0].read_bytes()):
        modules[name].append(parse_hlo(text))
    weighed = weigh_profile(profile, modules)
    (device,) = profile.devices
    bars.bar("fixture: executions", len(device.executions), 3, exact=True)
    bars.bar("fixture: time in operations us", weighed.total, 227.2625, exact=True)
    bars.bar("fixture: device", device.device_type, "TPU v6 Lite", exact=True)
    bars.bar("fixture: peak TFLOP/s in the trace", device.peak_tflops, 946.7, exact=True)
    mxu = [counter for counter in device.counters if counter.name == "MXU"]
    bars.bar("fixture: MXU counter samples", mxu[0].samples if mxu else 0, 1)
    kernels = {op.kernel for op in weighed.ops if op.kernel}
    bars.bar("fixture: Mosaic kernels", len(kernels), 1, exact=True)
    body = next(b for _, i in modules["jit_matmul_optimized"][0].instructions() if (b := body_of(i)) is not None)
    bars.bar("fixture: grid", list(body.grid or ()), [4, 2, 2], exact=True)
    bars.bar("fixture: blocks", [list(window) for window in body.windows], [[512, 512], [512, 1024], [512, 1024]], exact=True)
    (files,) = dump_files(folder / "jf_dump")
    schedule = read_schedule(files)
    bars.bar("fixture: bundles", schedule.bundles, 2705, exact=True)
    slots = {slot.unit: slot for slot in schedule.slots}
    bars.bar("fixture: MXU slots filled", slots["MXU"].used, 4036, exact=True)
    bars.bar("fixture: vector spills and fills", [schedule.vector_spills, schedule.vector_fills], [0, 0], exact=True)
    bars.bar("fixture: VMEM allocated, bytes", schedule.vmem_bytes, 9510912, exact=True)
    (program,) = (read_program(found) for found in mosaic_files(folder / "mosaic_dump"))
    bars.bar("fixture: grid by the Mosaic dump", list(program.grid or ()), [4, 2, 2], exact=True)
    bars.bar("fixture: blocks by the Mosaic dump", [list(window) for window in program.windows], [[512, 512], [512, 1024], [512, 1024]], exact=True)
    bars.bar("fixture: time with a line", weighed.attributed / weighed.total, 0.97)


def below(box: Box) -> Iterator[Box]:
    for child in box.children.values():
        yield child
        yield from below(child)


def train_step(bars: Bars) -> None:
    from tests.evidence.test_profile import MODEL

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "train_model.py"
        script.write_text(MODEL)
        subprocess.run([sys.executable, str(script), name], check=True, capture_output=True)
        weighed = {}
        for kind in ("unrolled", "scanned"):
            profile = read_profile(folder / kind)
            weighed[kind] = weigh_profile(profile, {"jit_train_step": [parse_hlo((folder / f"{kind}.hlo").read_text())]})
            found = weighed[kind]
            bars.bar(f"Flax {kind}: time with a line", found.attributed / found.total, 0.97)
            bars.bar(f"Flax {kind}: time with a frame in the model's file", found.share_within("train_model.py"), 0.95)
            tree = flame(found)
            named = {box.name for box in below(tree) if box.file.endswith("train_model.py")}
            wanted = {"Block.__call__", kind, "train_step"}
            bars.bar(f"Flax {kind}: model functions missing from the flame graph", sorted(wanted - named), [], exact=True)
            flames = sum(child.weight for child in tree.children.values())
            bars.bar(f"Flax {kind}: flame graph / total - 1", abs(flames / found.total - 1), 1e-9, at_least=False)
        for key in (by_class, by_line):
            rows = gap(weighed["unrolled"], weighed["scanned"], key).rows
            difference = weighed["scanned"].total - weighed["unrolled"].total
            bars.bar(f"gap {key.__name__}: rows / difference - 1", abs(sum(row.difference for row in rows) / difference - 1), 1e-6, at_least=False)


def attention(bars: Bars) -> None:
    if not compiler_status().available:
        bars.figure("attention preflight", "no TPU compiler here")
        return
    from tests.evidence import programs

    started = time.perf_counter()
    texts = [aot_compile(program, "v6e:2x2").hlo_text for program in (programs.einsum_export(), programs.splash_export())]
    einsum, splash = (parse_hlo(text) for text in texts)
    bars.figure("attention: two compiles s", time.perf_counter() - started)
    reading_speed(bars, "TPU attention", texts[0])
    change = diff(einsum, splash)
    scores = [buffer for buffer in change.buffers_went if buffer.shape == "f32[8,2048,2048]"]
    bars.bar("attention: score buffers that vanish, with their line", sum(bool(buffer.line) for buffer in scores), 1)
    back = diff(splash, einsum)
    bars.bar("attention: the same score buffers the other way round", sum(b.shape == "f32[8,2048,2048]" for b in back.buffers_came), len(scores), exact=True)
    bars.figure("attention: bytes written, einsum to splash", gap(weigh_module(einsum), weigh_module(splash)).rows[0].difference)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    shared = parser.parse_args().shared
    bars = Bars()
    hlo_text(bars)
    attention(bars)
    train_step(bars)
    if (shared / "evidence/v6e_matmul").is_dir():
        fixture(bars, shared / "evidence/v6e_matmul")
    else:
        bars.figure("fixture", f"not at {shared}")
    return bars.finish()


if __name__ == "__main__":
    sys.exit(main())
