"""Which experiment next, and why."""
