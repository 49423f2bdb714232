"""Durable jobs: the state machine, its records, schedules, and the operations of a store. Pure: no I/O, no clock, no randomness."""
