"""Runs the broker in a process on asyncio: sockets, timers and settings."""
