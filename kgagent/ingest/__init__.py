"""Source into graph: repo walk, tree-sitter symbols, JAX and Pallas extraction."""
