"""The journal on the broker's loop: events are collected and nothing waits for the disk."""
