"""``polydomo bench``."""
