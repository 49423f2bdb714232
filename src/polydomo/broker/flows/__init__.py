"""Flows: graphs of durable jobs. A node becomes a job when all nodes that it needs have ended. Pure: no I/O, no clock, no randomness."""
