"""Commands that call, offer, publish and find services."""
