"""One broker for the whole Majordomo family of messaging protocols."""

__version__ = "0.1.0"
