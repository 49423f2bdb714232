"""The journal: what happened to every message, on disk, for people, for the pipeline and for the audit."""
