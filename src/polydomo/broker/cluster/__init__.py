"""Other brokers, and the other processes of this broker."""
