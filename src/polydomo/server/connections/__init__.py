"""Sockets: listeners, connections in both directions, and UDP."""
