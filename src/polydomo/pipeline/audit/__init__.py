"""The audit on Spark: the rules of ``journal/reading/rules.py``, checked on the rows of a batch from a saved state."""
