"""eMQP, the protocol of EventMQ."""
