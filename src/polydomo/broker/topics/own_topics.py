"""Topics that only the broker publishes."""

from typing import Final

MONITOR: Final = b"monitor."  # state changes and metrics; every topic of the broker begins with this
TAP: Final = b"monitor.tap."  # messages of requests; a subscription to a shorter prefix does not include them
