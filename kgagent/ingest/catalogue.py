"""Kernel catalogues that people keep by hand: tables with a name, a path and what is claimed, in CSV, JSON or markdown."""

from __future__ import annotations

import csv
import io
import json
import re

COLUMNS = {
    "name": ("name", "kernel", "kernel name"),
    "repo": ("repo", "repository", "source", "package"),
    "path": ("path", "file", "location"),
    "backend": ("backend", "platform", "lowering"),
    "stability": ("stability", "status", "maturity"),
    "claim": ("claim", "claims", "performance", "speedup", "notes", "note"),
    "family": ("family", "category", "function", "op"),
}
_CELL_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
Row = dict[str, str]


def rows_of(text: str, kind: str) -> list[list[object]]:
    """[line, {column: text}] of every row of every table that names kernels and where they are; [] for any other file."""
    if kind == ".csv":
        return from_csv(text)
    if kind == ".json":
        return from_json(text)
    return from_markdown(text) if kind == ".md" else []


def columns_of(header: list[str]) -> dict[int, str]:
    """Position → our column; {} unless it has a name, a path and one of backend, stability, claim or repo."""
    found: dict[int, str] = {}
    for position, title in enumerate(header):
        plain = title.strip().strip("`*").lower()
        for column, titles in COLUMNS.items():
            if plain in titles and column not in found.values():
                found[position] = column
    known = set(found.values())
    return found if {"name", "path"} <= known and known & {"backend", "stability", "claim", "repo"} else {}


def row_of(cells: list[str], columns: dict[int, str]) -> Row:
    plain = (cell.encode("utf-8", "replace").decode() for cell in cells)  # JSON may spell half a character
    values = [_CELL_LINK.sub(r"\1", cell).strip().strip("`") for cell in plain]
    return {column: values[position] for position, column in columns.items() if position < len(values)}


def from_csv(text: str) -> list[list[object]]:
    reader = csv.reader(io.StringIO(text))
    try:
        columns = columns_of(next(reader, []))
        return [[reader.line_num, row] for cells in reader if columns and (row := row_of(cells, columns)).get("name")]
    except csv.Error:
        return []


def from_json(text: str) -> list[list[object]]:
    """A list of objects, or an object that holds one; lines by looking for each name."""
    if '"path"' not in text and '"file"' not in text:
        return []
    try:
        document = json.loads(text)
    except ValueError:
        return []
    lists = [document] if isinstance(document, list) else list(document.values()) if isinstance(document, dict) else []
    found: list[list[object]] = []
    for items in lists:
        if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
            continue
        header = list(dict.fromkeys(str(key) for item in items for key in item))
        columns = columns_of(header)
        at = 0
        for item in items if columns else ():
            row = row_of([str(item.get(key, "") or "") for key in header], columns)
            if row.get("name"):
                place = text.find(json.dumps(row["name"], ensure_ascii=False), at)
                at = max(at, place)
                found.append([text.count("\n", 0, at) + 1, row])
    return found


def from_markdown(text: str) -> list[list[object]]:
    found: list[list[object]] = []
    lines = text.splitlines()
    number = 0
    while number + 1 < len(lines):
        rule = lines[number + 1].strip()
        if "|" in lines[number] and rule and set(rule) <= set("|:- "):
            columns = columns_of(cells_of(lines[number]))
            number += 2
            while number < len(lines) and "|" in lines[number]:
                row = row_of(cells_of(lines[number]), columns) if columns else {}
                if row.get("name"):
                    found.append([number + 1, row])
                number += 1
        else:
            number += 1
    return found


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def from_rows(rows: list[tuple[int, int, list[str]]]) -> list[list[object]]:
    """Rows of HTML tables, (table, line, cells); a table's first row is its header."""
    found: list[list[object]] = []
    table, columns = -1, {}
    for number, line, cells in rows:
        if number != table:
            table, columns = number, columns_of(cells)
        elif columns and (row := row_of(cells, columns)).get("name"):
            found.append([line, row])
    return found
