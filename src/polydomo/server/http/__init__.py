"""HTTP endpoints that need the running server."""
