"""The protocol between brokers, and between the processes of one broker."""
