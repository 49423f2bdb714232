"""``make demo``: one broker, peers of every protocol, and what becomes of their requests."""
