"""What the broker reports about itself: events, metrics, built-in services."""
