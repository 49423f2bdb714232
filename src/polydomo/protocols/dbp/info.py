"""The contents of a DBP registration: name, heartbeat interval, publisher, and where the service takes requests.

"Service information shall consist of the services name, ip address, port, function, and heartbeat timing at a minimum." The document
defines no keys, and its own client sends ``name`` and little else, so only the name is required. A missing ip address is that of the peer;
the setting ``dbp.require`` names further fields.
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

# Keys of the heartbeat interval in seconds, as a number or a string.
TIMING_KEYS = ("heartbeat_timing", "heartbeat timing", "heartbeat_interval", "heartbeat", "interval")

IP_KEYS = ("ip", "ip address", "ip_address")

ERROR = "Error"  # the key of the inactive warning in an info reply
VALUES = "values:"  # prefix of a name in an info request that asks for the last values of topics
FUNCTION = "function:"  # prefix of a frame of an info request that asks for services by their function


def wrong_name(name: object) -> str:
    """Why this is not a valid service name; "" if it is valid."""
    if not isinstance(name, str) or not name.strip():
        return "a registration must contain the service's name"
    if "," in name or name != name.strip() or not name.isprintable():
        return "a name must be printable and without commas, which separate names in an info request"
    if name == ERROR:
        return f"the name {ERROR} is reserved for missing names in an info reply"
    if name.startswith(VALUES):
        return f"names that begin with {VALUES} are reserved for last values in an info request"
    if name.startswith(FUNCTION):
        return f"names that begin with {FUNCTION} are reserved for look-ups by function in an info request"
    if len(name.encode("utf-8", "surrogatepass")) > MAX_SERVICE_NAME:
        return f"a name of more than {MAX_SERVICE_NAME} bytes"
    return ""


def with_address(info: "dict[str, object]", address: str) -> "dict[str, object]":
    """The registration with the peer's address, if it names none."""
    return dict(info) if any(info.get(key) for key in IP_KEYS) else {**info, "ip": address}


def missing_fields(info: "dict[str, object]", required: "list[str]") -> "list[str]":
    """The required fields that a registration does not have. Each spelling of the ip address or of the heartbeat timing will do."""
    return [field for field in required if not any(_has_value(info.get(key)) for key in _spellings(field))]


def _spellings(field: str) -> "tuple[str, ...]":
    if field in IP_KEYS:
        return IP_KEYS
    return TIMING_KEYS if field in TIMING_KEYS else (field,)


def _has_value(value: object) -> bool:
    return value is not None and value != ""


def has_function(info: "dict[str, object]", wanted: "list[str]") -> bool:
    """Whether a registration has one of these functions. Only a final ``*`` is special, so that a comparison takes linear time.

    >>> has_function({"function": "images, raw"}, ["images*"]), has_function({"function": ["images", "video"]}, ["video"])
    (True, True)
    """
    given = info.get("function")
    for function in given if isinstance(given, list) else (given,):
        if isinstance(function, str):
            for text in wanted:
                if function == text or (text.endswith("*") and function.startswith(text[:-1])):
                    return True
    return False


def values_to_json(messages: "list[bytes]", room: int) -> "tuple[dict[str, object], int]":
    """Topics and their last values as JSON: a string, or a list of strings for several frames; binary data as ``{"base64": ...}``. Values
    that do not fit into ``room`` bytes are left out. Also returns the remaining room."""
    found: dict[str, object] = {}
    for message in messages:
        if len(message) > room:
            break
        room -= len(message)
        topic, *body = split(message)
        values = [_frame_to_json(content) for content in body]
        found[topic.decode(errors="backslashreplace")] = values[0] if len(values) == 1 else values
    return found, room


def _frame_to_json(content: bytes) -> object:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


class PublisherInfo:
    """Where a service publishes, and under which topics."""

    def __init__(self, host: str, port: int, topics: "tuple[bytes, ...]") -> None:
        self.host = host
        self.port = port
        self.topics = topics

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublisherInfo) and (self.host, self.port, self.topics) == (
            other.host,
            other.port,
            other.topics,
        )

    def __hash__(self) -> int:
        return hash((self.host, self.port, self.topics))


def publisher(info: "dict[str, object]", address: str) -> "PublisherInfo | str":
    """The publisher in a registration from ``address``, from ``topics`` and a ``pub`` interface; "" if there is none, or an error text.
    The broker connects only to the address that registered. If "ip" is another address, the registration is not followed, because
    otherwise any peer could make the broker connect to any address."""
    interfaces = info.get("interfaces")
    place = interfaces.get("pub") if isinstance(interfaces, dict) else None
    topics = info.get("topics")
    if not isinstance(place, dict) or not topics:
        return ""
    port = _port(place.get("port"))
    if not port:
        return "the pub interface has no port"
    if not _is_own_host(place.get("ip", address), address):
        return "the pub interface has another ip than the one that registered"
    wanted = [topics] if isinstance(topics, str) else topics
    if (
        not isinstance(wanted, list)
        or len(wanted) > MAX_PUBLISHER_TOPICS
        or not all(isinstance(topic, str) for topic in wanted)
    ):
        return f"topics must be a list of at most {MAX_PUBLISHER_TOPICS} strings"
    prefixes = tuple(str(topic).encode("utf-8", "replace") for topic in wanted)
    if any(len(prefix) > MAX_TOPIC for prefix in prefixes):
        return f"a topic of over {MAX_TOPIC} bytes"
    return PublisherInfo(address, port, prefixes)


class RequestsInfo:
    """Where a service takes requests: at an address, or, without a port, over the connection that registered it."""

    def __init__(self, host: str = "", port: int = 0) -> None:
        self.host = host
        self.port = port

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RequestsInfo) and (self.host, self.port) == (other.host, other.port)

    def __hash__(self) -> int:
        return hash((self.host, self.port))


def takes_requests(info: "dict[str, object]") -> bool:
    interfaces = info.get("interfaces")
    return isinstance(interfaces, dict) and interfaces.get("requests") not in (None, False)


def requests(info: "dict[str, object]", address: str, over_connection: bool) -> "RequestsInfo | str":
    """Where a service that registered from ``address`` takes requests, from ``{"interfaces": {"requests": ...}}``; "" if it takes none, or
    an error text. ``true``: over its connection; if that is a REQ socket (not ``over_connection``), at its ``router`` interface or its own
    ip and port. ``{"port": ...}``: at that port. The broker connects only to the address that registered, as for publishers."""
    interfaces = info.get("interfaces")
    if not isinstance(interfaces, dict) or not takes_requests(info):
        return ""
    place: object = interfaces["requests"]
    if place is True and over_connection:
        return RequestsInfo()
    if place is True:
        router = interfaces.get("router")
        place = router if isinstance(router, dict) else {"port": info.get("port")}
    if not isinstance(place, dict):
        return "the requests interface must be true, or an object with a port"
    port = _port(place.get("port"))
    if not port:
        return (
            "no requests can be sent over this connection (it is a REQ socket, or its last request has no reply), and the requests "
            "interface has no port: register on a new DEALER socket, or name a port"
        )
    if not _is_own_host(place.get("ip", address), address):
        return "the requests interface has another ip than the one that registered"
    return RequestsInfo(address, port)


def _port(value: object) -> int:
    """A port as a number or a string; 0 if it is none."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 5:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536 else 0


def _is_own_host(host: object, address: str) -> bool:
    return host in (address, "0.0.0.0", "*", "") or (host == "localhost" and address in ("127.0.0.1", "::1"))


def timing(info: "dict[str, object]", default: float) -> "float | None":
    """The heartbeat interval in ``info``, clamped to the allowed range: 0 if there is none, None if it is invalid. ``true`` selects
    ``default``."""
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
