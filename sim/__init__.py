"""The simulator: brokers, clients and workers of every protocol in one thread, from one seed. See docs/reliability.md."""
