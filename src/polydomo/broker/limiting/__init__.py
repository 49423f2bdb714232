"""Limits of services: how many requests run at the same time, and how many start in a window, per service, principal or group."""
