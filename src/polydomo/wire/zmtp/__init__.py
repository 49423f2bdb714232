"""ZMTP, the wire protocol of ZeroMQ."""
