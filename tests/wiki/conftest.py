"""Makes tests/ask/graphs.py importable here: the vault is rendered from the same graph that questions are asked of."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "ask"))
