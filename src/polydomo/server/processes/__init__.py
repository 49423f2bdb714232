"""One broker in several processes."""
