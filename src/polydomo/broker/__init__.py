"""What may happen next: the state machine of services, workers, requests and the catalog. No I/O, no clock."""
