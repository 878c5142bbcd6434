"""Find lanes and read lane.toml; a broken one gives one error with file and line, what is wrong and what to write.

Why no schema library: each message must name the line in a file a person edits.
"""

from __future__ import annotations

import difflib
import keyword
import math
import re
import tomllib
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path, PurePosixPath
from typing import Any

from kgagent.errors import ConfigError, UnknownThing
from kgagent.lanes.records import Budgets, GateRule, HloExpectation, Knob, Lane, LaneLever, OpPoint, Scalar, spell
from kgagent.objects import canonical_json, sha256_hex
from kgagent.workspace import Workspace

NAME = re.compile(r"[a-z][a-z0-9_-]*")
NUMBER = (int, float)
PLATFORMS = ("cpu", "tpu")
LEVER_TEXTS = ("statement", "mechanism", "predicted_signal", "falsification")
ANY = "*"  # a lever of every value of its knob
# What each section may say; a misspelt key would otherwise be a rule that silently doesn't hold.
SECTIONS = ("lane", "scope", "files", "op_points", "gates", "budgets", "guards", "knobs", "levers")
LANE_KEYS = ("name", "kind", "metric", "unit", "direction", "refutation_reach", "doc")
SCOPE_KEYS = ("problem", "harness", "chip", "topology")
FILES_KEYS = ("mutable", "immutable")
KNOB_KEYS = ("default", "choices", "doc", "when")
LEVER_KEYS = ("knob", "value", *LEVER_TEXTS, "concepts", "symbols", "prior", "expected_gain", "expect")


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
    """The lane's folder, the workspace's own before a shipped one of that name; an own folder that lost its lane.toml is told, not passed over."""
    for folder in (workspace.lanes, shipped_lanes()) if NAME.fullmatch(name) else ():
        if (folder / name / "lane.toml").is_file():
            return folder / name
        if (folder / name).is_dir():
            hint = "kgagent init puts the shipped one back" if (shipped_lanes() / name / "lane.toml").is_file() else "write one, or remove the folder"
            raise ConfigError("the lane's folder has no lane.toml", where=str(folder / name / "lane.toml"), hint=hint)
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


def label(section: str) -> str:
    """A section as it stands in the file: [lane], [[levers]] number 2."""
    name, _, nth = section.partition("#")
    return f"[[{name}]] number {nth}" if nth else f"[{name}]"


def shown(value: Any) -> str:
    """A wrong value, short."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def is_scalar(value: Any) -> bool:
    """What JSON and a command line can spell."""
    return isinstance(value, str | int | float) and finite(value)


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
        """A value that must be there, of its type; numbers are finite, since nothing compares with infinity or NaN."""
        if key not in table:
            raise self.fail(f"{label(section)} lacks `{key}`", section, hint=f"add {key} = {what}")
        value = table[key]
        if not isinstance(value, type_) or (isinstance(value, bool) and type_ in (int, NUMBER)) or not finite(value):
            kind = "a finite number" if type_ == NUMBER else what
            raise self.fail(f"{label(section)} `{key}` should be {kind}, not {shown(value)}", section, key, hint=f"write {key} = {what}")
        return value

    def one_of(self, table: dict[str, Any], section: str, key: str, allowed: tuple[str, ...]) -> str:
        value = self.need(table, section, key, str, f'"{allowed[0]}"')
        if value not in allowed:
            raise self.fail(f"{label(section)} `{key}` is {value!r}", section, key, hint=f"one of: {', '.join(allowed)}")
        return str(value)

    def known(self, table: Iterable[str], section: str, allowed: tuple[str, ...], what: str) -> None:
        """Refuse a key that nobody reads."""
        for key in table:
            if key not in allowed:
                near = difflib.get_close_matches(key, allowed, n=1)
                hint = f"did you mean {near[0]}?" if near else f"one of: {', '.join(allowed)}"
                raise self.fail(f"{label(section)} has no {what} {key!r}" if section else f"no {what} is named {key!r}", section or key, key, hint=hint)

    def table(self, root: dict[str, Any], name: str, section: str = "") -> dict[str, Any]:
        """The section `name` of a table; `section` is where that table stands, the file itself when empty."""
        value = root.get(name, {})
        if not isinstance(value, dict):
            where = f"{label(section)} `{name}`" if section else f"`{name}`"
            raise self.fail(f"{where} should be a section, not {shown(value)}", section or name, name, hint=f"write [{section + '.' if section else ''}{name}]")
        return value

    def subsections(self, root: dict[str, Any], name: str) -> list[tuple[str, dict[str, Any]]]:
        """The sections below one, such as [gates.parity] below gates."""
        holder = self.table(root, name)
        return [(key, self.table(holder, key, name)) for key in holder]

    def text(self, table: dict[str, Any], section: str, key: str) -> str:
        """A text that may be left out."""
        return str(self.need(table, section, key, str, '"…"')) if key in table else ""

    def texts(self, table: dict[str, Any], section: str, key: str) -> tuple[str, ...]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fail(f"{label(section)} `{key}` should be a list of texts", section, key, hint=f'write {key} = ["…"]')
        return tuple(value)

    def scalars(self, table: dict[str, Any], section: str, skip: tuple[str, ...]) -> tuple[tuple[str, Scalar], ...]:
        """Settings whose names are the lane's own: shapes of an operating point, thresholds of a gate."""
        for key, value in table.items():
            if key not in skip and not is_scalar(value):
                raise self.fail(f"{label(section)} `{key}` should be a text, a finite number or true/false", section, key, hint=f"write {key} = 1")
        return tuple((key, value) for key, value in table.items() if key not in skip)

    def files(self, table: dict[str, Any], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Names of files below the lane's folder; one outside it would be copied, and written, outside the scratch folder."""
        names = self.texts(table, "files", key) or default
        for name in names:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\0" in name or str(path) != name or name in ("lane.toml", "program.md", "."):
                raise self.fail(f"[files] `{key}` names {name!r}, which is no file of the lane's own", "files", key, hint="name a file below the lane's folder")
        return names

    def lane(self, root: dict[str, Any], folder: Path, raw: bytes) -> Lane:
        self.known(root, "", SECTIONS, "section")
        lane, scope, files = self.table(root, "lane"), self.table(root, "scope"), self.table(root, "files")
        for section, table, allowed in (("lane", lane, LANE_KEYS), ("scope", scope, SCOPE_KEYS), ("files", files, FILES_KEYS)):
            self.known(table, section, allowed, "key")
        name = self.need(lane, "lane", "name", str, f'"{folder.name}"')
        if name != folder.name or not NAME.fullmatch(name):
            raise self.fail(f"the lane is named {name!r} in a folder named {folder.name!r}", "lane", "name", hint=f'write name = "{folder.name}"')
        mutable, immutable = self.files(files, "mutable", ("candidate.py",)), self.files(files, "immutable", ("reference.py", "inputs.py"))
        if twice := sorted({file for file in (*mutable, *immutable) if (*mutable, *immutable).count(file) > 1}):
            raise self.fail(f"[files] names {twice[0]!r} twice", "files", "immutable", hint="a file is either mutable or immutable")
        contents = {"lane.toml": raw} | {file: _read(folder / file) for file in (*mutable, *immutable)}
        if (folder / "program.md").is_file():
            contents["program.md"] = _read(folder / "program.md")
        knobs = tuple(self.knob(n, t) for n, t in self.subsections(root, "knobs"))
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
            doc=self.text(lane, "lane", "doc"),
            folder=folder,
            chip=self.text(scope, "scope", "chip"),
            topology=self.text(scope, "scope", "topology"),
            problem=self.need(scope, "scope", "problem", str, '"what is computed"'),
            harness=self.need(scope, "scope", "harness", str, '"how it is run"'),
            op_points=self.op_points(root),
            gates=tuple(self.gate(n, t) for n, t in self.subsections(root, "gates")),
            budgets=self.budgets(self.table(root, "budgets")),
            guards=tuple(self.guard(n, t) for n, t in self.subsections(root, "guards")),
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
            if not re.fullmatch(r"[\w.+=-]+", name):
                raise self.fail(f"an operating point is named {name!r}", section, "name", hint="use letters, digits and . + = - _ only")
            if name in found:
                raise self.fail(f"two operating points are named {name!r}", section, "name", hint="give each its own name")
            rest = self.scalars(table, section, ("name", "role", "platforms"))
            found[name] = OpPoint(name, self.one_of(table, section, "role", ("timed", "parity")), self.texts(table, section, "platforms") or ("cpu",), rest)
            for platform in found[name].platforms:
                if platform not in PLATFORMS:
                    raise self.fail(f"no platform is named {platform!r}", section, "platforms", hint=f"one of: {', '.join(PLATFORMS)}")
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
        return GateRule(name, mandatory, self.scalars(table, f"gates.{name}", ("mandatory",)))

    def guard(self, name: str, table: dict[str, Any]) -> tuple[str, float]:
        self.known(table, f"guards.{name}", ("bound",), "key")
        return name, float(self.need(table, f"guards.{name}", "bound", NUMBER, "256.0"))

    def budgets(self, table: dict[str, Any]) -> Budgets:
        kinds = {f.name: f.default for f in fields(Budgets)}
        for key, value in table.items():
            if key not in kinds:
                raise self.fail(f"no budget is named {key!r}", "budgets", key, hint=f"one of: {', '.join(kinds)}")
            whole = isinstance(kinds[key], int)
            if isinstance(value, bool) or not isinstance(value, int if whole else NUMBER) or not finite(value) or value <= 0:
                raise self.fail(f"[budgets] `{key}` should be a positive {'whole ' if whole else ''}number", "budgets", key, hint=f"write {key} = {kinds[key]}")
        return Budgets(**table)

    def knob(self, name: str, table: dict[str, Any]) -> Knob:
        section = f"knobs.{name}"
        if not name.isidentifier() or keyword.iskeyword(name):
            raise self.fail(f"a knob is named {name!r}", section, hint="use a Python name: the candidate takes it as an argument")
        self.known(table, section, KNOB_KEYS, "key")
        choices = tuple(self.need(table, section, "choices", list, "[…]"))
        spelled = [spell(choice) for choice in choices if is_scalar(choice)]
        if not choices or len(spelled) < len(choices) or len(set(spelled)) < len(spelled) or "" in spelled:
            raise self.fail(
                f"{label(section)} `choices` should be texts, numbers or true/false, each spelled its own way", section, "choices", hint="write [128, 256]"
            )
        default: Scalar = self.need(table, section, "default", (str, int, float), "one of its choices")
        if not any(default == choice and type(default) is type(choice) for choice in choices):
            raise self.fail(
                f"knob {name}'s default {default!r} isn't among its choices", section, "default", hint="add it to choices, or choose another default"
            )
        when = tuple(self.condition(section, other, values) for other, values in self.table(table, "when", section).items())
        return Knob(name, default, choices, self.text(table, section, "doc"), when)

    def condition(self, section: str, other: str, values: Any) -> tuple[str, tuple[Scalar, ...]]:
        if not isinstance(values, list) or not values:
            raise self.fail(
                f"{label(section)} `when.{other}` should be a list of that knob's values", section, "when", hint=f'write when = {{ {other} = ["…"] }}'
            )
        return other, tuple(values)

    def levers(self, root: dict[str, Any], knobs: tuple[Knob, ...]) -> tuple[LaneLever, ...]:
        known = {knob.name: knob for knob in knobs}
        for knob in knobs:
            for other, values in knob.when:
                if other not in known or other == knob.name:
                    raise self.fail(
                        f"knob {knob.name} hangs on {other!r}, which is no knob it can hang on",
                        f"knobs.{knob.name}",
                        "when",
                        hint=f"one of: {', '.join(known)}",
                    )
                strange = [value for value in values if value not in known[other].choices]
                if strange:
                    choices = ", ".join(map(spell, known[other].choices))
                    raise self.fail(
                        f"knob {knob.name} hangs on {other}={strange[0]}, which is no choice", f"knobs.{knob.name}", "when", hint=f"one of: {choices}"
                    )
        found: dict[str, LaneLever] = {}
        for nth, table in enumerate(self.tables(root, "levers"), 1):
            lever = self.lever(f"levers#{nth}", table, known)
            if lever.slug() in found:
                raise self.fail(f"two levers are of {lever.slug()}", f"levers#{nth}", "value", hint="keep one of them")
            found[lever.slug()] = lever
        return tuple(found.values())

    def lever(self, section: str, table: dict[str, Any], knobs: dict[str, Knob]) -> LaneLever:
        self.known(table, section, LEVER_KEYS, "key")
        knob = self.one_of(table, section, "knob", tuple(knobs) or ("",))
        value: Scalar = self.need(table, section, "value", (str, int, float), '"*"')
        if value != ANY and value not in knobs[knob].choices:
            raise self.fail(
                f"lever {knob}={value} isn't a choice of that knob", section, "value", hint=f"one of: {', '.join(map(str, knobs[knob].choices))}, *"
            )
        statement, mechanism, predicted_signal, falsification = (str(self.need(table, section, key, str, '"…"')) for key in LEVER_TEXTS)
        prior = float(self.need(table, section, "prior", NUMBER, "0.3"))
        if not 0 < prior < 1:
            raise self.fail(f"a prior is a probability between 0 and 1, not {prior}", section, "prior", hint="write prior = 0.3")
        gain = float(self.need(table, section, "expected_gain", NUMBER, "1.2"))
        if gain <= 0:
            raise self.fail(f"an expected gain is a ratio above 0, not {gain}", section, "expected_gain", hint="write expected_gain = 1.2 for 20% faster")
        expect = self.table(table, "expect", section)
        self.known(expect, section, PLATFORMS, "platform")
        hlo = tuple(self.expectation(section, platform, self.table(expect, platform, section)) for platform in expect)
        concepts, symbols = self.texts(table, section, "concepts"), self.texts(table, section, "symbols")
        return LaneLever(knob, value, statement, mechanism, predicted_signal, falsification, concepts, symbols, prior, gain, hlo)

    def expectation(self, section: str, platform: str, table: dict[str, Any]) -> HloExpectation:
        self.known(table, section, ("expect", "forbid"), "expectation")
        expect, forbid = self.texts(table, section, "expect"), self.texts(table, section, "forbid")
        for pattern in (*expect, *forbid):
            try:
                re.compile(re.sub(r"\{[a-z_]+\}", "1", pattern))
            except re.error as error:
                raise self.fail(f"the HLO pattern {pattern!r} isn't a regular expression: {error}", section, "expect", hint="escape [ and ( with \\") from error
        return HloExpectation(platform, expect, forbid)
