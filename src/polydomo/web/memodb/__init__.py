"""MemoDB's REST API."""
