"""Requests: admission, queues, dispatch, replies, time limits and outcomes."""
