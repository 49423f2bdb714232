"""The addresses that polydomo listens on and connects to.

    tcp://127.0.0.1:5246   tcp://[::1]:5246   tcp://broker.example:5246   tcp://*:5246   ipc:///run/polydomo.sock
    tls+tcp://broker.example:5246   (for connecting; a tcp:// listener accepts both)
    discover://            discover://127.255.255.255:6245

``discover://`` is the address of the first broker whose beacon arrives, on UDP port 5245 or the given address. As in ZeroMQ, ``*`` is
every interface, and with port ``0`` (or ``*``) the system chooses.
"""

import ipaddress
import re
from dataclasses import dataclass, field, replace
from typing import Any

from polydomo.errors import SettingError
from polydomo.limits import BEACON_PORT, DEFAULT_PORT, MAX_IPC_PATH

TCP = "tcp"
TLS = "tls+tcp"  # a scheme, not a kind of address: TLS over TCP
IPC = "ipc"
DISCOVER = "discover"

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?", re.ASCII)
_LIKE_IPV4 = re.compile(r"[0-9.]+", re.ASCII)
_ENCRYPTED = ("https", "wss", "tls", "ssl", TLS)  # schemes that name TLS
_WRITE = "write tcp://HOST:PORT or ipc:///PATH"


@dataclass(frozen=True)
class Address:
    """One address; ``str()`` returns its URL."""

    kind: str  # TCP, IPC or DISCOVER
    host: str = ""  # an IPv4 or IPv6 address without brackets, a name, or "*"
    port: int = 0  # 0: the system chooses
    path: str = ""  # IPC only
    tls: bool = field(default=False, repr=False)  # TCP only
    security: Any = field(default=None, compare=False, repr=False)  # a client's credentials; not part of the URL

    def __str__(self) -> str:
        if self.kind == IPC:
            return f"ipc://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{TLS if self.tls else self.kind}://{host}:{self.port}"


def parse_url(text: object, connect: bool = False) -> Address:
    """Parses a URL; with ``connect``, only one that can be connected to. Raises SettingError with the expected form.

    >>> parse_url("tcp://[::1]:5246")
    Address(kind='tcp', host='::1', port=5246, path='')
    """
    if not isinstance(text, str):
        raise SettingError(
            f"an address must be a string such as tcp://127.0.0.1:5246, not {type(text).__name__}: {text!r}"
        )
    if "," in text and not text.startswith(f"{IPC}://"):
        what = "connect to one broker" if connect else "list the addresses separately"
        raise _wrong(text, f"these are several addresses; {what}, such as {text.partition(',')[0].strip()}")
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise _wrong(text, f"it has no scheme; {_suggestion(text, connect) or _WRITE}")
    if scheme == TCP:
        return _parse_tcp(text, rest, connect)
    if scheme == TLS:
        if not connect:
            raise _wrong(text, "listen on tcp://: TLS is served there if the access file has server.tls")
        return replace(_parse_tcp(text, rest, connect), tls=True)
    if scheme == IPC:
        return _parse_ipc(text, rest)
    if scheme == DISCOVER:
        return _parse_discover(text, rest, connect)
    raise _wrong(text, f"polydomo does not know {scheme + '://'!r}; {_suggestion(text, connect) or _WRITE}")


def is_loopback(address: Address) -> bool:
    """True if only this machine can reach the address. The only name that counts is ``localhost``; any other may resolve to anything."""
    if address.kind == IPC:
        return True
    if address.host.lower().rstrip(".") == "localhost":
        return True
    try:
        ip = ipaddress.ip_address(address.host)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        return ip.ipv4_mapped.is_loopback
    return ip.is_loopback


def _parse_tcp(text: str, rest: str, connect: bool) -> Address:
    host, colon, port_text = rest.rpartition(":")
    if not colon or port_text.endswith("]"):
        hint = _suggestion(text, connect) or f"write tcp://HOST:PORT, such as tcp://127.0.0.1:{DEFAULT_PORT}"
        raise _wrong(text, f"the port is missing; {hint}")
    if "/" in port_text and (hint := _suggestion(text, connect)):
        raise _wrong(text, f"a path follows the port; {hint}")
    host = _parse_host(text, host)
    port = _parse_port(text, port_text)
    if connect and host == "*":
        raise _wrong(text, "'*' is only for listening; name the host to connect to")
    if connect and port == 0:
        raise _wrong(text, "port 0 is only for listening; name the port to connect to")
    return Address(TCP, host=host, port=port)


def _parse_discover(text: str, rest: str, connect: bool) -> Address:
    if not connect:
        raise _wrong(text, f"discover:// is only for clients and workers; {_WRITE}")
    if not rest:
        return Address(DISCOVER, "*", BEACON_PORT)
    host, colon, port_text = rest.rpartition(":")
    if not colon or "[" in rest:
        raise _wrong(
            text,
            "write discover://, or discover://HOST:PORT to listen for beacons elsewhere (IPv4: beacons are broadcast)",
        )
    return Address(DISCOVER, _parse_host(text, host), _parse_port(text, port_text) or BEACON_PORT)


def _parse_host(text: str, host: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise _wrong(text, f"{host!r} is not an IPv6 address, such as tcp://[::1]:5246") from None
        return host
    if host == "*":
        return host
    if not host:
        raise _wrong(
            text, "the host is missing; write tcp://127.0.0.1:PORT for this machine or tcp://*:PORT for every interface"
        )
    if ":" in host:
        raise _wrong(text, f"write an IPv6 address in brackets: tcp://[{host.strip('[]')}]:PORT")
    if _LIKE_IPV4.fullmatch(host):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise _wrong(text, f"{host!r} is not an IPv4 address, such as 127.0.0.1") from None
        return host
    if len(host) > 253 or ".." in host or not _NAME.fullmatch(host):
        raise _wrong(text, f"{host!r} is not a host; {_WRITE}")
    return host


def _parse_port(text: str, port: str) -> int:
    if port == "*":
        return 0
    # isdigit alone would accept digits of other scripts
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise _wrong(text, f"{port!r} is not a port; write a number from 0 to 65535")
    return int(port)


def _parse_ipc(text: str, path: str) -> Address:
    if not path:
        raise _wrong(text, "the path is missing; write ipc:///PATH, such as ipc:///tmp/polydomo.sock")
    if path.startswith("@"):
        raise _wrong(text, "abstract sockets are not served; write ipc:///PATH")
    if "\0" in path or path.endswith("/"):
        raise _wrong(text, f"{path!r} is not the path of a socket; write ipc:///PATH")
    size = len(path.encode("utf-8", "surrogateescape"))
    if size > MAX_IPC_PATH:
        raise _wrong(text, f"the path has {size} bytes; the limit is {MAX_IPC_PATH}")
    return Address(IPC, path=path)


def _suggestion(text: str, connect: bool) -> str:
    """The address that was probably meant, as a question; empty if there is none.

    >>> [_suggestion(text, True) for text in ("7402", "localhost", "https://broker:7402/v1", "/run/polydomo.sock", "?")]
    ['did you mean tcp://127.0.0.1:7402?', 'did you mean tcp://localhost:5246?', 'did you mean tls+tcp://broker:7402?', \
'did you mean ipc:///run/polydomo.sock?', '']
    """
    scheme, separator, rest = text.strip().rpartition("://")
    scheme = scheme.lower()
    if rest.startswith("/") and (not separator or scheme in ("unix", "file")):
        return f"did you mean ipc://{rest}?"
    place = rest.partition("/")[0].rpartition("@")[2]
    if place.isascii() and place.isdigit() and not separator:
        place = f":{place}"
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, str(DEFAULT_PORT)
    kind = TLS if connect and scheme in _ENCRYPTED else TCP
    meant = f"{kind}://{host or '127.0.0.1'}:{port}"
    try:
        parse_url(meant, connect)
    except SettingError:
        return ""
    return f"did you mean {meant}?" if place and meant != text else ""


def _wrong(text: str, why: str) -> SettingError:
    return SettingError(f"{text!r} is not an address: {why}")
