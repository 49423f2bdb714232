"""Durable jobs: what a request says about its job, and the messages of the built-in services."""
