"""Commands that run and configure a broker."""
