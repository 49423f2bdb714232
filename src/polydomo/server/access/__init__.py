"""The access file, and the principals of connections."""
