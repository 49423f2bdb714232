"""Durable jobs from the shell: ``submit``, ``result``, ``cancel``, ``jobs``, ``job``, ``dead`` and ``schedule``."""
