"""What a DBP registration says: the name, and how often the service will beat.

"Service information shall consist of the services name, ip address, port, function, and heartbeat timing at a minimum." The document gives
no keys; its own client sends ``name`` and leaves most of the rest out, so only the name is asked for.
"""

import base64
import math

from polydomo.limits import (
    DBP_BEAT_LEAST,
    DBP_BEAT_MOST,
    MAX_PUBLISHER_TOPICS,
    MAX_SERVICE_NAME,
    MAX_TOPIC,
)
from polydomo.wire.frames import split

# Under any of these the heartbeat timing is found, as seconds: a number or a string of one.
TIMING_KEYS = ("heartbeat_timing", "heartbeat timing", "heartbeat_interval", "heartbeat", "interval")

ERROR = "Error"  # the key of the inactive warning in an info reply
VALUES = "values:"  # what an info request begins with that asks for the last values of topics under a prefix


def wrong_name(name: object) -> str:
    """Why this cannot be the name of a service in the catalog; "" if it can."""
    if not isinstance(name, str) or not name.strip():
        return "a registration names its service"
    if "," in name or name != name.strip() or not name.isprintable():
        return "a name is printable and has no commas, which separate names in an info request"
    if name == ERROR:
        return f"the name {ERROR} marks what is missing in an info reply"
    if name.startswith(VALUES):
        return f"{VALUES} asks for last values in an info request"
    if len(name.encode("utf-8", "surrogatepass")) > MAX_SERVICE_NAME:
        return f"a name of more than {MAX_SERVICE_NAME} bytes"
    return ""


def values_to_json(messages: "list[bytes]", room: int) -> "tuple[dict[str, object], int]":
    """Topics and their last values as JSON has them: text, or for several frames a list of texts; bytes that are no text as
    ``{"base64": ...}``. What would take more than ``room`` bytes is left out; returns what is left of it, too."""
    found: dict[str, object] = {}
    for message in messages:
        if len(message) > room:
            break
        room -= len(message)
        topic, *body = split(message)
        told = [_frame_to_json(content) for content in body]
        found[topic.decode(errors="backslashreplace")] = told[0] if len(told) == 1 else told
    return found, room


def _frame_to_json(content: bytes) -> object:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


class Publisher:
    """Where a service publishes, and under which topics."""

    def __init__(self, host: str, port: int, topics: "tuple[bytes, ...]") -> None:
        self.host = host
        self.port = port
        self.topics = topics

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Publisher) and (self.host, self.port, self.topics) == (
            other.host,
            other.port,
            other.topics,
        )

    def __hash__(self) -> int:
        return hash((self.host, self.port, self.topics))


def publisher(info: "dict[str, object]", address: str) -> "Publisher | str":
    """The publisher that a registration from ``address`` names with ``topics`` and a ``pub`` interface; "" if it names none, else what is
    wrong with it. "ip" proves nothing: what is dialled is the address that registered, and a registration that names another is
    not followed, or anybody could make the broker connect to anything."""
    interfaces = info.get("interfaces")
    place = interfaces.get("pub") if isinstance(interfaces, dict) else None
    topics = info.get("topics")
    if not isinstance(place, dict) or not topics:
        return ""
    port = place.get("port")
    if isinstance(port, str) and port.isascii() and port.isdigit() and len(port) <= 5:
        port = int(port)
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        return "its pub interface has no port"
    host = place.get("ip", address)
    if host not in (address, "0.0.0.0", "*", "") and not (host == "localhost" and address in ("127.0.0.1", "::1")):
        return "its pub interface is at another ip than the one that registered"
    wanted = [topics] if isinstance(topics, str) else topics
    if (
        not isinstance(wanted, list)
        or len(wanted) > MAX_PUBLISHER_TOPICS
        or not all(isinstance(topic, str) for topic in wanted)
    ):
        return f"topics are a list of up to {MAX_PUBLISHER_TOPICS} texts"
    prefixes = tuple(str(topic).encode("utf-8", "replace") for topic in wanted)
    if any(len(prefix) > MAX_TOPIC for prefix in prefixes):
        return f"a topic of over {MAX_TOPIC} bytes"
    return Publisher(address, port, prefixes)


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
