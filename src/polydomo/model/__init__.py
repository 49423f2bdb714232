"""What every layer talks about: requests, services, workers, sessions, and the interface of the broker to sessions. Pure."""
