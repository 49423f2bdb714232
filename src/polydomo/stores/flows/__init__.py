"""The tables of flows: the rules within a transaction, for SQL and in memory."""
