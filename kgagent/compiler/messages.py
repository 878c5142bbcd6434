"""The compiler's error texts as data: which memory, asked against limit, which allocation, which flag."""

from __future__ import annotations

import re

from kgagent.compiler.records import Refusal

_UNIT = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_AMOUNT = r"([\d.]+)\s*([BKMGT]?)(?:iB|B)?"
_SCOPED = re.compile(rf"allocation with size {_AMOUNT} and limit {_AMOUNT}")
_TEMPORARIES = re.compile(rf"total memory required[^(]*\({_AMOUNT}\) exceeds available \w+ \({_AMOUNT}\)")
_USED_OF = re.compile(rf"Used {_AMOUNT} of {_AMOUNT} (\w+)")
_SPACE = re.compile(r"(?:memory space|Ran out of memory on|on device|exceeds available) (\w+)")
_INSTRUCTION = re.compile(r"%([\w.\-]+) = (\(.*?\)|\S+) [\w\-]+\(")
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_UNKNOWN_FLAG = re.compile(r"ERROR: Unknown command line flag '([^']+)'")
_BAD_FLAG = re.compile(r"ERROR: Illegal value '(.*?)' specified for flag '(\w+)'")
_CODE = re.compile(r"\b(E\d{4}): ?(\w+)")
_SEE = re.compile(r"\nSee https://\S+ for more details\.\s*$")


def amount_bytes(number: str, unit: str) -> int:
    """`75.37`, `M` as bytes; the compiler's K, M and G are binary."""
    return round(float(number) * _UNIT[unit])


def human_bytes(value: int) -> str:
    """Binary units as the compiler prints them."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= size:
            return f"{value / size:.2f} {unit}"
    return f"{value} B"


def refusal(message: str, *, stage: str) -> Refusal:
    """Read a compiler message; one that no rule knows is kept as `refused` with its first line."""
    text = message.strip()
    if "RESOURCE_EXHAUSTED" in text or "Ran out of memory" in text:
        return _out_of_memory(text, stage)
    if "Mosaic" in text:
        line = next((line for line in text.splitlines() if "Mosaic" in line), text.splitlines()[0])
        return Refusal("mosaic", line.strip()[:300], text, stage, op_name=_first(_OP_NAME, text), hint="change the kernel or its block shapes")
    first = next(iter(text.splitlines()), "no message")
    return Refusal("refused", first[:300], text, stage, op_name=_first(_OP_NAME, text), hint="read the whole message; change the program")


def refused_flags(printed: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """(flag -> value it doesn't take, flags nobody knows) from what libtpu prints before it gives up; it names all of them at once."""
    return {flag: value for value, flag in _BAD_FLAG.findall(printed)}, tuple(dict.fromkeys(_UNKNOWN_FLAG.findall(printed)))


def flag_refusal(printed: str) -> Refusal | None:
    """The refusal of a compile whose flags libtpu didn't take; None where it took them."""
    bad, unknown = refused_flags(printed)
    if unknown:
        names = ", ".join(unknown)
        what = f"the compiler has no flag{'s' if len(unknown) > 1 else ''} {names}"
        return Refusal("unknown_flag", what, printed[-2000:], "flags", allocation=unknown[0], hint="remove it, or check its spelling")
    for flag, value in bad.items():
        return Refusal("bad_flag", f"{value!r} isn't a value for {flag}", printed[-2000:], "flags", allocation=flag, hint="give a value of its type")
    return None


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found.group(1) if found else ""


def _out_of_memory(text: str, stage: str) -> Refusal:
    code = _CODE.search(text)
    found_space = _SPACE.search(text)
    space = found_space.group(1).lower() if found_space else ""
    if not space and code:
        space = next((name for name in ("vmem", "hbm", "smem", "cmem") if name in code.group(2).lower()), "")
    asked = limit = None
    found = _SCOPED.search(text) or _TEMPORARIES.search(text) or _USED_OF.search(text)
    if found:
        asked, limit = amount_bytes(found.group(1), found.group(2)), amount_bytes(found.group(3), found.group(4))
    instruction = _INSTRUCTION.search(text)
    allocation, shape = (instruction.group(1), instruction.group(2)) if instruction else ("", "")
    numbers = f": asked {human_bytes(asked)}, limit {human_bytes(limit)}" if asked is not None and limit is not None else ""
    place = f" by {allocation}" if allocation else ""
    what = f"out of {space.upper() or 'memory'} at compile time{numbers}{place}"
    hint = {
        "vmem": "smaller blocks, or raise xla_tpu_scoped_vmem_limit_kib",
        "hbm": "smaller batch, rematerialise, shard further, or donate inputs",
    }.get(space, "make it smaller")
    kind = f"{space}_oom" if space in ("vmem", "hbm") else "oom"
    return Refusal(kind, what, _SEE.sub("", text), stage, space, asked, limit, allocation, shape, _first(_OP_NAME, text), hint=hint)
