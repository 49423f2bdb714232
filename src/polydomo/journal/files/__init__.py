"""Segments on disk: written, published, merged, checked and removed."""
