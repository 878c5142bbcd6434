"""Questions answered from the graph, with citations."""
