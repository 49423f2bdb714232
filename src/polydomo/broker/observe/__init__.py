"""What the broker reports about itself: events, metrics, rows about services, workers and requests."""
