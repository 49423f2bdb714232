"""Security of ZMTP connections: CURVE and PLAIN, and keys as text."""
