"""Durable jobs: the state machine, its records, schedules, and what it asks of a store. Pure: no I/O, no clock, no randomness."""
