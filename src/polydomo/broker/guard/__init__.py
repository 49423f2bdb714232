"""Rights, quotas and limits: who may do what, and how much of it."""
