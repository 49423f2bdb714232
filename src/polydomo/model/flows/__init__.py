"""Flows: the graph, its file, its messages, and the answers that add nodes to one."""
