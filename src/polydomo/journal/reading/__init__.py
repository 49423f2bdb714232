"""Reads journals: rows, stories of requests, rules, replay and spans."""
