"""Commands that show and control a running broker."""
