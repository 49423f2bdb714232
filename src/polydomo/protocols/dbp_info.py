"""What a DBP registration says: the name, and how often the service will beat.

"Service information shall consist of the services name, ip address, port, function, and heartbeat timing at a minimum." The document gives
no keys; its own client sends ``name`` and leaves most of the rest out, so only the name is asked for.
"""

import math

from polydomo.limits import DBP_BEAT_LEAST, DBP_BEAT_MOST, MAX_SERVICE_NAME

# Under any of these the heartbeat timing is found, as seconds: a number or a string of one.
TIMING_KEYS = ("heartbeat_timing", "heartbeat timing", "heartbeat_interval", "heartbeat", "interval")

ERROR = "Error"  # the key of the inactive warning in an info reply


def wrong_name(name: object) -> str:
    """Why this cannot be the name of a service in the catalog; "" if it can."""
    if not isinstance(name, str) or not name.strip():
        return "a registration names its service"
    if "," in name or name != name.strip() or not name.isprintable():
        return "a name is printable and has no commas, which separate names in an info request"
    if name == ERROR:
        return f"the name {ERROR} marks what is missing in an info reply"
    if len(name.encode("utf-8", "surrogatepass")) > MAX_SERVICE_NAME:
        return f"a name of more than {MAX_SERVICE_NAME} bytes"
    return ""


def timing(info: "dict[str, object]", default: float) -> "float | None":
    """The heartbeat interval that ``info`` names, brought within bounds: 0 if it names none, None if it makes no sense. ``true`` agrees to
    beat without saying how often: ``default``."""
    for key in TIMING_KEYS:
        if key in info:
            return _seconds(info[key], default)
    return 0.0


def _seconds(value: object, default: float) -> "float | None":
    if value is None or value is False:
        return 0.0
    if value is True:
        return default
    if not isinstance(value, (int, float, str)):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(seconds) or seconds <= 0:
        return None
    return min(max(seconds, DBP_BEAT_LEAST), DBP_BEAT_MOST)
