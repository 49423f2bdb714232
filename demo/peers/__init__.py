"""The peers of the demo: workers in processes of their own, and clients of every protocol and dialect."""
