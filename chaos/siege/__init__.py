"""Attacks on a real broker process, with an honest client beside them.

Each attack is a small function in ``work.py``, ``memory.py`` or ``trust.py``. ``stand.py`` starts the broker and an honest client with
its worker (``honest.py``), and measures the longest call of the honest client and the broker's resident memory. ``python -m chaos.siege``
runs all attacks and prints a table.
"""
