"""Find lanes and read lane.toml; a broken one gives one error with file and line, what is wrong and what to write.

Why no schema library: each message must name the line in a file a person edits.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from kgagent.errors import ConfigError, UnknownThing
from kgagent.lanes.records import Budgets, GateRule, HloExpectation, Knob, Lane, LaneLever, OpPoint, Scalar
from kgagent.objects import canonical_json, sha256_hex
from kgagent.workspace import Workspace

NAME = re.compile(r"[a-z][a-z0-9_-]*")
LEVER_TEXTS = ("statement", "mechanism", "predicted_signal", "falsification")


def shipped_lanes() -> Path:
    """The lanes that come with kgagent: the checkout's first (an editable install has no copies), then the wheel's."""
    package = Path(__file__).resolve().parents[1]
    checkout = package.parent / "lanes"
    if (package.parent / "pyproject.toml").is_file() and checkout.is_dir():
        return checkout
    return package / "_lanes"


def list_lanes(workspace: Workspace) -> tuple[str, ...]:
    """Names of all lanes, the workspace's own and the shipped ones."""
    folders = [workspace.lanes, shipped_lanes()]
    return tuple(sorted({toml.parent.name for folder in folders if folder.is_dir() for toml in folder.glob("*/lane.toml")}))


def find_lane(workspace: Workspace, name: str) -> Path:
    """The lane's folder, the workspace's own before a shipped one of that name."""
    for folder in (workspace.lanes, shipped_lanes()):
        if NAME.fullmatch(name) and (folder / name / "lane.toml").is_file():
            return folder / name
    known = list_lanes(workspace)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known lanes: {', '.join(known) or 'none'}"
    raise UnknownThing(f"no lane {name!r}", where=str(workspace.lanes), hint=hint)


def load_lane(workspace: Workspace, name: str) -> Lane:
    """Read, check and hash a lane by name."""
    return read_lane(find_lane(workspace, name))


def read_lane(folder: Path) -> Lane:
    """Read, check and hash the lane in a folder."""
    path = folder / "lane.toml"
    raw = _read(path)
    try:
        table = tomllib.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError("lane.toml isn't UTF-8", where=str(path), hint="save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        raise ConfigError(f"lane.toml doesn't parse: {error}", where=f"{path}:{line[1]}" if line else str(path), hint="fix that line") from error
    return _Reader(path, raw.decode("utf-8")).lane(table, folder, raw)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"can't read {path.name}: {error.strerror or error}", where=str(path), hint="the lane needs that file") from error


class _Reader:
    """Checks each value as it is taken, so that an error knows its section and key."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.lines = text.splitlines()

    def fail(self, what: str, section: str, key: str = "", hint: str = "") -> ConfigError:
        return ConfigError(what, where=f"{self.path}{self.line(section, key)}", hint=hint)

    def line(self, section: str, key: str) -> str:
        """`:N` of a key in a section (`levers#2` is the second [[levers]]), of the section, or nothing."""
        name, _, nth = section.partition("#")
        header = re.compile(rf"\s*\[\[?\s*{re.escape(name)}\s*\]\]?")
        starts = [i for i, line in enumerate(self.lines) if header.match(line)]
        if not starts or (nth and int(nth) > len(starts)):
            return ""
        start = starts[int(nth) - 1 if nth else 0]
        for i in range(start + 1, len(self.lines)):
            if self.lines[i].startswith("[") and not self.lines[i].startswith(f"[{name}."):
                break
            if key and re.match(rf"\s*{re.escape(key)}\s*[=.]", self.lines[i]):
                return f":{i + 1}"
        return f":{start + 1}"

    def need(self, table: dict[str, Any], section: str, key: str, type_: type | tuple[type, ...], what: str) -> Any:
        if key not in table:
            raise self.fail(f"[{section}] lacks `{key}`", section, hint=f"add {key} = {what}")
        value = table[key]
        if not isinstance(value, type_) or (isinstance(value, bool) and type_ in (int, (int, float))):
            raise self.fail(f"[{section}] `{key}` should be {what}", section, key, hint=f"write {key} = {what}")
        return value

    def one_of(self, table: dict[str, Any], section: str, key: str, allowed: tuple[str, ...]) -> str:
        value = self.need(table, section, key, str, f'"{allowed[0]}"')
        if value not in allowed:
            raise self.fail(f"[{section}] `{key}` is {value!r}", section, key, hint=f"one of: {', '.join(allowed)}")
        return str(value)

    def table(self, root: dict[str, Any], name: str) -> dict[str, Any]:
        value = root.get(name, {})
        if not isinstance(value, dict):
            raise self.fail(f"`{name}` should be a section", name, hint=f"write [{name}]")
        return value

    def texts(self, table: dict[str, Any], section: str, key: str) -> tuple[str, ...]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fail(f"[{section}] `{key}` should be a list of texts", section, key, hint=f'write {key} = ["…"]')
        return tuple(value)

    def lane(self, root: dict[str, Any], folder: Path, raw: bytes) -> Lane:
        lane, scope, files = self.table(root, "lane"), self.table(root, "scope"), self.table(root, "files")
        name = self.need(lane, "lane", "name", str, f'"{folder.name}"')
        if name != folder.name or not NAME.fullmatch(name):
            raise self.fail(f"the lane is named {name!r} in a folder named {folder.name!r}", "lane", "name", hint=f'write name = "{folder.name}"')
        mutable = self.texts(files, "files", "mutable") or ("candidate.py",)
        immutable = self.texts(files, "files", "immutable") or ("reference.py", "inputs.py")
        contents = {"lane.toml": raw} | {file: _read(folder / file) for file in (*mutable, *immutable)}
        if (folder / "program.md").is_file():
            contents["program.md"] = _read(folder / "program.md")
        knobs = tuple(self.knob(n, t) for n, t in self.table(root, "knobs").items())
        reach = lane.get("refutation_reach", 1)
        if type(reach) is not int or reach < 0:
            raise self.fail("[lane] `refutation_reach` should be a whole number", "lane", "refutation_reach", hint="write refutation_reach = 1")
        return Lane(
            name=name,
            kind=self.one_of(lane, "lane", "kind", ("kernel", "model", "repository")),
            metric=self.need(lane, "lane", "metric", str, '"step_ms"'),
            unit=self.need(lane, "lane", "unit", str, '"ms"'),
            direction=self.one_of(lane, "lane", "direction", ("min", "max")),
            refutation_reach=reach,
            doc=str(lane.get("doc", "")),
            folder=folder,
            chip=str(scope.get("chip", "")),
            topology=str(scope.get("topology", "")),
            problem=self.need(scope, "scope", "problem", str, '"what is computed"'),
            harness=self.need(scope, "scope", "harness", str, '"how it is run"'),
            op_points=self.op_points(root),
            gates=tuple(self.gate(n, t) for n, t in self.table(root, "gates").items()),
            budgets=self.budgets(self.table(root, "budgets")),
            guards=tuple((n, float(self.need(t, f"guards.{n}", "bound", (int, float), "a number"))) for n, t in self.table(root, "guards").items()),
            knobs=knobs,
            levers=self.levers(root, knobs),
            mutable=mutable,
            immutable=immutable,
            digest=sha256_hex(canonical_json({file: sha256_hex(contents[file]) for file in ("lane.toml", *immutable)})),
            files=contents,
        )

    def op_points(self, root: dict[str, Any]) -> tuple[OpPoint, ...]:
        found: dict[str, OpPoint] = {}
        for nth, table in enumerate(self.tables(root, "op_points"), 1):
            section = f"op_points#{nth}"
            name = self.need(table, section, "name", str, '"a-name"')
            if name in found:
                raise self.fail(f"two operating points are named {name!r}", section, "name", hint="give each its own name")
            rest = tuple((key, value) for key, value in table.items() if key not in ("name", "role", "platforms"))
            found[name] = OpPoint(name, self.one_of(table, section, "role", ("timed", "parity")), self.texts(table, section, "platforms") or ("cpu",), rest)
        for platform in sorted({platform for point in found.values() for platform in point.platforms}):
            timed = [point.name for point in found.values() if platform in point.platforms and point.role == "timed"]
            if len(timed) != 1:
                raise self.fail(f"platform {platform} has {len(timed)} timed operating points", "op_points", hint='give exactly one role = "timed"')
        if not found:
            raise self.fail("the lane has no operating point", "op_points", hint="add an [[op_points]] section with name, role and shapes")
        return tuple(found.values())

    def tables(self, root: dict[str, Any], name: str) -> list[dict[str, Any]]:
        value = root.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.fail(f"`{name}` should be a list of sections", name, hint=f"write [[{name}]]")
        return value

    def gate(self, name: str, table: dict[str, Any]) -> GateRule:
        mandatory = self.need(table, f"gates.{name}", "mandatory", bool, "true")
        return GateRule(name, mandatory, tuple((key, value) for key, value in table.items() if key != "mandatory"))

    def budgets(self, table: dict[str, Any]) -> Budgets:
        kinds = {f.name: f.default for f in fields(Budgets)}
        for key, value in table.items():
            if key not in kinds:
                raise self.fail(f"no budget is named {key!r}", "budgets", key, hint=f"one of: {', '.join(kinds)}")
            whole = isinstance(kinds[key], int)
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or value <= 0:
                raise self.fail(f"[budgets] `{key}` should be a positive {'whole ' if whole else ''}number", "budgets", key, hint=f"write {key} = {kinds[key]}")
        return Budgets(**table)

    def knob(self, name: str, table: dict[str, Any]) -> Knob:
        section = f"knobs.{name}"
        choices = tuple(self.need(table, section, "choices", list, "[…]"))
        default: Scalar = self.need(table, section, "default", (str, int, float), "one of its choices")
        if default not in choices:
            raise self.fail(
                f"knob {name}'s default {default!r} isn't among its choices", section, "default", hint="add it to choices, or choose another default"
            )
        when = tuple((other, tuple(values)) for other, values in self.table(table, "when").items() if isinstance(values, list))
        return Knob(name, default, choices, str(table.get("doc", "")), when)

    def levers(self, root: dict[str, Any], knobs: tuple[Knob, ...]) -> tuple[LaneLever, ...]:
        known = {knob.name: knob for knob in knobs}
        for knob in knobs:
            for other, _ in knob.when:
                if other not in known:
                    raise self.fail(f"knob {knob.name} hangs on {other!r}, which is no knob", f"knobs.{knob.name}", "when", hint=f"one of: {', '.join(known)}")
        return tuple(self.lever(f"levers#{nth}", table, known) for nth, table in enumerate(self.tables(root, "levers"), 1))

    def lever(self, section: str, table: dict[str, Any], knobs: dict[str, Knob]) -> LaneLever:
        knob = self.one_of(table, section, "knob", tuple(knobs) or ("",))
        value: Scalar = self.need(table, section, "value", (str, int, float), '"*"')
        if value != "*" and value not in knobs[knob].choices:
            raise self.fail(
                f"lever {knob}={value} isn't a choice of that knob", section, "value", hint=f"one of: {', '.join(map(str, knobs[knob].choices))}, *"
            )
        statement, mechanism, predicted_signal, falsification = (str(self.need(table, section, key, str, '"…"')) for key in LEVER_TEXTS)
        prior = float(self.need(table, section, "prior", (int, float), "0.3"))
        if not 0 < prior < 1:
            raise self.fail(f"a prior is a probability between 0 and 1, not {prior}", section, "prior", hint="write prior = 0.3")
        gain = float(self.need(table, section, "expected_gain", (int, float), "1.2"))
        hlo = tuple(self.expectation(section, platform, t) for platform, t in self.table(table, "expect").items())
        concepts, symbols = self.texts(table, section, "concepts"), self.texts(table, section, "symbols")
        return LaneLever(knob, value, statement, mechanism, predicted_signal, falsification, concepts, symbols, prior, gain, hlo)

    def expectation(self, section: str, platform: str, table: dict[str, Any]) -> HloExpectation:
        expect, forbid = self.texts(table, section, "expect"), self.texts(table, section, "forbid")
        for pattern in (*expect, *forbid):
            try:
                re.compile(re.sub(r"\{[a-z_]+\}", "1", pattern))
            except re.error as error:
                raise self.fail(f"the HLO pattern {pattern!r} isn't a regular expression: {error}", section, "expect", hint="escape [ and ( with \\") from error
        return HloExpectation(platform, expect, forbid)
