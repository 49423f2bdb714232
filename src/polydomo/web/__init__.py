"""The HTTP API: an application of the broker, pure as the protocols are. ``api`` lists its endpoints."""
