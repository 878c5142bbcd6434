"""The Obsidian mirror of the graph."""
