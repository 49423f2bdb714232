"""Trouble for real processes: a broker, its peers in processes of their own, a network between them that misbehaves, and a table of what
became of every call. ``python -m chaos.run --help``; docs/chaos.md tells what is checked.
"""
