"""Fault injection on real processes: a broker, its peers as separate processes, a faulty network between them, and a table of the
outcome of every call. Run ``python -m chaos.run --help``; docs/chaos.md describes what is checked.
"""
