"""The journal: records every request or message on disk, for inspection, the pipeline and the audit."""
