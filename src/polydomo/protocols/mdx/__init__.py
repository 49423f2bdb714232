"""MDX, the 0.1 draft with PARTIAL and FINAL replies."""
