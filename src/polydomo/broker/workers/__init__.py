"""Workers: registration, liveness, and control by operators."""
