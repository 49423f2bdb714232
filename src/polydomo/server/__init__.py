"""Sockets, timers and settings: the broker in a process, on asyncio."""
