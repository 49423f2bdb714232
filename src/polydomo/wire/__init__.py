"""Converts bytes to messages and back: ZMTP, SP, HTTP. No sockets, no clock, no randomness."""
