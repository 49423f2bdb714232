"""Topics: publications, subscriptions, last values and log records."""
