"""DBP, the protocol of the Core Catalog Service."""
