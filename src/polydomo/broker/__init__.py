"""The state machine of services, workers, requests and the catalog. No I/O, no clock."""
