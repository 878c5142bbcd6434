"""Obsidian's own files: table views over our properties and colours for the graph, written once and then the person's.

Obsidian rewrites both kinds of file itself, so kgagent never touches one that exists.
"""

from __future__ import annotations

import json

from kgagent.wiki.vault import Vault

VIEWS = {
    "hypotheses.base": """filters:
  and:
    - 'kind == "hypothesis"'
properties:
  expected_gain:
    displayName: "expected gain"
  cost_minutes:
    displayName: "cost, min"
views:
  - type: table
    name: "Open"
    filters:
      and:
        - 'status == "open"'
    order: [file.name, title, lane, expected_gain, cost_minutes, prior]
    sort:
      - property: expected_gain
        direction: DESC
  - type: table
    name: "All"
    order: [file.name, title, lane, status, expected_gain]
    groupBy:
      property: status
      direction: ASC
""",
    "frontier.base": """filters:
  and:
    - 'kind == "experiment"'
properties:
  over_reference:
    displayName: "over the reference"
  noise_floor_pct:
    displayName: "noise floor, %"
views:
  - type: table
    name: "Frontier"
    filters:
      and:
        - 'frontier == "yes"'
    order: [file.name, title, lane, chip, over_reference, speedup_low, speedup_high, device]
  - type: table
    name: "All experiments"
    order: [file.name, title, lane, verdict, outcome, over_reference, speedup, noise_floor_pct, device]
    sort:
      - property: over_reference
        direction: DESC
  - type: table
    name: "By verdict"
    order: [file.name, title, lane, over_reference, device]
    groupBy:
      property: verdict
      direction: ASC
""",
    "kernels.base": """filters:
  and:
    - 'kind == "kernel"'
views:
  - type: table
    name: "Kernels"
    order: [file.name, title, backend, path, body]
    groupBy:
      property: backend
      direction: ASC
""",
}
COLOURS = {
    "kernels": 0x2F80ED, "concepts": 0x27AE60, "lanes": 0xEB5757, "hypotheses": 0xF2C94C, "experiments": 0xF2994A, "profiles": 0x9B51E0, "sources": 0x828282
}  # fmt: skip


def write_views(vault: Vault) -> None:
    """The views and graph colours that aren't there yet."""
    for name, text in VIEWS.items():
        path = vault.root / name
        if not path.exists():
            vault.put_file(path, text)
    path = vault.root / ".obsidian" / "graph.json"
    if not path.exists():
        groups = [{"query": f"path:{folder}/", "color": {"a": 1, "rgb": rgb}} for folder, rgb in COLOURS.items()]
        vault.put_file(path, json.dumps({"colorGroups": groups}, indent=2) + "\n")
