"""``make demo``: one broker, peers of every protocol, and the outcomes of their requests."""
