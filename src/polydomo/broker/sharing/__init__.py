"""One run of a service that answers several requests: equal keys and memoised services."""
