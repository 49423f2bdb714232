"""Bytes to messages and back: ZMTP, SP. No sockets, no clock, no randomness."""
