"""The candidate's own process: import it, trace it, hand over StableHLO, end.

Runs as `python -m kgagent.lanes.tracer job.json` under limits; nothing it says is trusted.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Refusal(Exception):
    """The program can't be handed over as pure StableHLO."""


def main(job_path: str) -> int:
    job = json.loads(Path(job_path).read_text())
    out = Path(job["out"])
    if importlib.util.find_spec("jax") is None or importlib.util.find_spec("flatbuffers") is None:
        return _note(out, "unavailable", "tracing needs jax and flatbuffers")

    def explain(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
        """Whatever a candidate raises becomes one line that names its own file."""
        del trace
        _note(out, "crashed", f"{_place(error, job['shown_as'])}{kind.__name__}: {_first_line(error)}")

    sys.excepthook = explain
    try:
        _export_all(job, out)
    except Refusal as error:
        return _note(out, "refused", str(error))
    except SystemExit as error:
        return _note(out, "crashed", f"{_place(error, job['shown_as'])}SystemExit: {error.code}")
    return 0


def _export_all(job: dict[str, Any], out: Path) -> None:
    import jax
    import jax.export

    folder = Path(job["lane"])
    inputs = _function(_load(folder, "inputs", job["shown_as"]), "inputs")
    specs = [jax.eval_shape(lambda point=point: inputs(0, point)) for _, point in job["points"]]  # before the candidate can patch anything
    if any(not isinstance(spec, tuple) for spec in specs):
        raise Refusal("inputs.py: inputs(seed, op_point) must return a tuple of arrays, one an argument")
    function = _function(_load(folder, job["function"], job["shown_as"]), job["function"])
    knobs = job["knobs"]

    def named(*arrays: Any) -> Any:
        return function(*arrays, **knobs)

    named.__name__ = job["function"]
    for index, spec in enumerate(specs):
        try:
            with _target(job["device"]):
                data = jax.export.export(jax.jit(named), platforms=[job["platform"]])(*spec).serialize()
        except (NotImplementedError, ValueError) as error:
            if _place(error, job["shown_as"]):
                raise  # the candidate's own
            raise Refusal(f"the program can't be handed over: {_first_line(error)}") from error
        (out / f"{index}.stablehlo").write_bytes(data)


@contextmanager
def _target(device: list[Any] | None) -> Iterator[None]:
    """Kernels that ask for their chip see the one compiled for."""
    if device is None:
        yield
        return
    import jax
    from jax.sharding import AbstractDevice, AbstractMesh

    kind, cores = device
    mesh = AbstractMesh((), (), (), abstract_device=AbstractDevice(device_kind=kind, num_cores=cores, platform="tpu"))
    with jax.sharding.use_abstract_mesh(mesh):
        yield


def _load(folder: Path, name: str, shown_as: str) -> types.ModuleType:
    """Import a lane file under the path a person knows it by."""
    module = types.ModuleType(name)
    module.__file__ = str(folder / f"{name}.py")
    sys.modules[name] = module
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    code = compile((folder / f"{name}.py").read_bytes(), str(Path(shown_as) / f"{name}.py"), "exec")
    exec(code, module.__dict__)
    return module


def _function(module: types.ModuleType, name: str) -> Any:
    """The function a lane's file is asked for."""
    found = getattr(module, name, None)
    if not callable(found):
        raise Refusal(f"{module.__name__}.py defines no function {name}()")
    return found


def _place(error: BaseException, shown_as: str) -> str:
    """`candidate.py:12: ` of the innermost frame in the lane's folder."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(shown_as)]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}: "
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}: " if frames else ""


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else "no message"


def _note(out: Path, outcome: str, message: str) -> int:
    (out / "failure.json").write_text(json.dumps({"outcome": outcome, "message": message}))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
