"""The audit on Spark: the rules of ``journal/rules.py``, checked on the rows of a batch from a saved state."""
