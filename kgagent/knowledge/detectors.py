"""Detectors as people write them in a page's properties: `KIND NAME: PATTERN`, one quoted line each.

One line a detector, because Obsidian shows no nested YAML; parsed strictly, because a detector that silently never
fires looks just like code that lacks the concept.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass

from kgagent.errors import ConfigError
from kgagent.knowledge.records import DETECTOR_KINDS, Detector

_LINE = re.compile(r"(?P<kind>\S+)\s+(?P<name>[^\s:]+)\s*:\s*(?P<pattern>.+)", re.DOTALL)
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_SHAPES = {
    "symbol": (re.compile(r"[A-Za-z_*?][\w.*?]*"), "a dotted name with * for the parts that vary, such as *.splash_attention*.make_splash_mha"),
    "parameter": (re.compile(r"[A-Za-z_]\w*"), "argument or field names, such as block_q, block_kv"),
    "flag": (re.compile(r"[a-z][a-z0-9_*]*"), "flag names without dashes, such as xla_tpu_scoped_vmem_limit_kib"),
    "alias": (re.compile(r"[A-Za-z0-9][\w +/.-]*"), "plain words, such as online softmax"),
}
_HLO_KEYS = ("kernel", "shape", "target")
_FORM = 'write "KIND NAME: PATTERN", KIND one of ' + ", ".join(DETECTOR_KINDS)


@dataclass(frozen=True, slots=True)
class HloPattern:
    """What an HLO instruction must look like; unset globs are '*'."""

    opcode: str
    kernel: str
    shape: str
    target: str

    def matches(self, opcode: str, kernel: str, shape: str, target: str) -> bool:
        pairs = ((self.opcode, opcode), (self.kernel, kernel), (self.shape, shape), (self.target, target))
        # "[" is part of a shape such as f32[8,128], never a character class
        return all(glob == "*" or fnmatch.fnmatchcase(text, glob.replace("[", "[[]")) for glob, text in pairs)


def parse_detector(text: str, *, where: str, line: int) -> Detector:
    """A detector from its line; `ConfigError` says which part is wrong and how it should look."""
    place = f"{where}:{line}"
    found = _LINE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"not a detector: {text!r}", where=place, hint=_FORM)
    kind, name, pattern = found["kind"], found["name"], found["pattern"].strip()
    if kind not in DETECTOR_KINDS:
        raise ConfigError(f"no detectors of kind {kind!r}", where=place, hint=_FORM)
    if not _NAME.fullmatch(name):
        raise ConfigError(f"a detector can't be named {name!r}", where=place, hint="use lowercase letters, digits and -")
    if kind == "source":
        _check_regex(pattern, place)
        patterns: tuple[str, ...] = (pattern,)
    elif kind == "hlo":
        _hlo(pattern, place)
        patterns = (pattern,)
    else:
        shape, example = _SHAPES[kind]
        patterns = tuple(part.strip() for part in pattern.split(","))
        for part in patterns:
            if not shape.fullmatch(part) or not re.search(r"\w{2}", part):
                raise ConfigError(f"{part!r} can't be a {kind} pattern", where=place, hint=f"write {example}")
    return Detector(kind, name, patterns, line)


def hlo_pattern(detector: Detector) -> HloPattern:
    """The parsed form of an `hlo` detector."""
    return _hlo(detector.patterns[0], str(detector.line))


def symbol_regex(glob: str) -> re.Pattern[str]:
    """A glob over dotted names; `*` crosses dots."""
    return re.compile(fnmatch.translate(glob))


def text_regexes(detector: Detector) -> tuple[re.Pattern[str], ...]:
    """What a textual detector looks for. Each regex starts with a literal where it can: `re` then skips ahead to it."""
    if detector.kind == "source":
        return (re.compile(detector.patterns[0], re.MULTILINE),)
    if detector.kind == "parameter":
        names = "|".join(map(re.escape, detector.patterns))
        # After "(", "," or a line's start: an annotated field or argument, a keyword, or a bare argument in a list.
        return (re.compile(rf"(?:[(,*]|^)\s*(?:{names})\s*(?::(?=\s*[A-Za-z_\"'(])|=(?![= ])|(?<=\w)(?=[,)]))", re.MULTILINE),)
    if detector.kind == "flag":
        return tuple(re.compile(re.escape(name).replace(r"\*", r"\w*") + r"(?!\w)") for name in detector.patterns)
    return tuple(re.compile(r"[\s_-]*".join(map(re.escape, words)) + r"(?!\w)") for words in map(phrase_words, detector.patterns))


def phrase_words(phrase: str) -> list[str]:
    """Words of an alias; between them text may have spaces, underscores, hyphens or nothing."""
    return re.split(r"[ _-]+", phrase.lower())


def needles(detector: Detector) -> tuple[tuple[str, ...], ...]:
    """Sets of strings: a text must hold all of one set, else the detector can't fire there; () when nothing can be said."""
    if detector.kind == "source":
        literals = [longest_literal(part) for part in alternatives(detector.patterns[0])]
        return tuple((literal,) for literal in literals) if all(len(literal) >= 3 for literal in literals) else ()
    if detector.kind == "flag":
        return tuple((max(pattern.split("*"), key=len),) for pattern in detector.patterns)
    if detector.kind == "alias":
        return tuple(tuple(phrase_words(phrase)) for phrase in detector.patterns)
    return ()


def alternatives(pattern: str) -> list[str]:
    """A regex cut at its top-level bars."""
    parts, start, at = [], 0, 0
    while at < len(pattern):
        if pattern[at] == "|":
            parts.append(pattern[start:at])
            start = at + 1
        at += _step(pattern, at)
    return [*parts, pattern[start:]]


def longest_literal(pattern: str) -> str:
    """The longest run of characters that every match of a regex must hold; '' when alternatives make that unsure."""
    best = run = ""
    at = 0
    while at < len(pattern):
        char = pattern[at]
        step, literal = _step(pattern, at), ""
        if char == "\\":
            if at + 1 < len(pattern) and not pattern[at + 1].isalnum():
                literal = pattern[at + 1]
        elif char == "(":
            if pattern.startswith("(?", at) and pattern[at + 2 : at + 3].isalpha():
                return ""  # inline flags may change what a letter matches
        elif char == "|":
            return ""
        elif char in "?*{":
            run = run[:-1]
        elif char not in ".^$+[":
            literal = char
        at += step
        if literal:
            run += literal
        else:
            best, run = max(best, run, key=len), ""
            if char == "{":
                at = max(at, pattern.find("}", at) + 1)
        best = max(best, _kept(run, pattern, at), key=len)
    return best


def _step(pattern: str, at: int) -> int:
    """Length of the escape, class, group or single character that starts there."""
    char = pattern[at]
    if char == "\\":
        return 2
    if char == "[":
        return _class_length(pattern, at)
    return _group_length(pattern, at) if char == "(" else 1


def _kept(run: str, pattern: str, at: int) -> str:
    """The run without a last character that a following quantifier makes optional."""
    return run[:-1] if at < len(pattern) and pattern[at] in "?*{" else run


def _class_length(pattern: str, start: int) -> int:
    at = start + 1
    if pattern[at : at + 1] == "^":
        at += 1
    if pattern[at : at + 1] == "]":
        at += 1
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at - start + 1


def _group_length(pattern: str, start: int) -> int:
    depth, at = 0, start
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 2
            continue
        if pattern[at] == "[":
            at += _class_length(pattern, at)
            continue
        depth += {"(": 1, ")": -1}.get(pattern[at], 0)
        at += 1
        if depth == 0:
            break
    return at - start


def _check_regex(pattern: str, place: str) -> None:
    try:
        compiled = re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise ConfigError(f"not a regular expression: {error}", where=place, hint="in double quotes a backslash is written twice: exp\\\\(x\\\\)") from error
    if compiled.search(""):
        raise ConfigError(f"{pattern!r} matches everything", where=place, hint="make at least one character of it required")


def _hlo(pattern: str, place: str) -> HloPattern:
    opcode, *rest = pattern.split()
    globs = dict.fromkeys(_HLO_KEYS, "*")
    for part in rest:
        key, equals, value = part.partition("=")
        if key not in globs or not equals or not value:
            raise ConfigError(f"{part!r} means nothing in an hlo pattern", where=place, hint="write OPCODE kernel=GLOB shape=GLOB target=GLOB")
        globs[key] = value
    if not re.fullmatch(r"[a-z*?][a-z0-9*?-]*", opcode):
        raise ConfigError(f"{opcode!r} can't be an HLO opcode", where=place, hint="write OPCODE kernel=GLOB shape=GLOB target=GLOB")
    return HloPattern(opcode, globs["kernel"], globs["shape"], globs["target"])
