"""DCP, the protocol of DagBox."""
