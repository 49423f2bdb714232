"""The types of settings: how values are parsed from a file, a variable or a flag, and how they are formatted.

``read`` takes a TOML value or a string (from variables and flags). It raises ValueError("must be ..."), to which the caller adds the
rejected value, or a SettingError with a complete message. ``show`` formats a value as text that ``read`` accepts.
"""

import ipaddress
import re
from typing import Generic, TypeVar

from polydomo.errors import SettingError
from polydomo.model import durations
from polydomo.model.objective import EXPECTED as OBJECTIVE
from polydomo.model.objective import Objective, read_objective
from polydomo.model.service_limits import RATE, ServiceLimits, read_rate
from polydomo.stores.urls import without_password
from polydomo.wire.address import parse_url

T = TypeVar("T")

_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}


class Kind(Generic[T]):
    """The interface of all setting types."""

    def read(self, value: object) -> T:
        raise NotImplementedError

    def show(self, value: T) -> str:
        return str(value)


class Text(Kind[str]):
    def __init__(self, empty: bool = False) -> None:
        self.empty = empty  # whether it may be empty

    def read(self, value: object) -> str:
        if not isinstance(value, str) or "\0" in value or not (value.strip() or self.empty):
            raise ValueError("must be a string" if self.empty else "must be a non-empty string")
        return value


class StoreUrl(Text):
    """The address of a job store. Its password is not shown."""

    def show(self, value: str) -> str:
        return without_password(value)


class Flag(Kind[bool]):
    def read(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str):
            word = value.strip().lower()
            if word in _TRUE:
                return True
            if word in _FALSE:
                return False
        raise ValueError("must be true or false")

    def show(self, value: bool) -> str:
        return "true" if value else "false"


class Choice(Kind[str]):
    def __init__(self, *words: str) -> None:
        self.words = words

    def read(self, value: object) -> str:
        if isinstance(value, str) and value.strip().lower() in self.words:
            return value.strip().lower()
        raise ValueError(f"must be one of {', '.join(self.words)}")


class Count(Kind[int]):
    """A whole number between two bounds."""

    def __init__(self, least: int = 1, most: int = 10**9) -> None:
        self.least = least
        self.most = most

    def read(self, value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9][0-9_]*\s*", value, re.ASCII):
            value = int(value.replace("_", ""))
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= self.most:
            raise ValueError(f"must be a whole number from {self.least} to {self.most}")
        return value


class ProcessCount(Count):
    """A number of processes; ``auto``, shown for 0, is one for each core that this process may use."""

    def read(self, value: object) -> int:
        if isinstance(value, str) and value.strip().lower() == "auto":
            return 0
        try:
            return super().read(value)
        except ValueError:
            raise ValueError(f"must be auto, or a whole number from {self.least} to {self.most}") from None

    def show(self, value: int) -> str:
        return str(value) if value else "auto"


class Size(Kind[int]):
    """Bytes: a whole number, or a number with a unit."""

    def __init__(self, least: int = 1, most: int = 2**40) -> None:
        self.least = least
        self.most = most

    def read(self, value: object) -> int:
        number = durations.read_size(value)
        if number is None or number != int(number):
            raise ValueError('must be a number of bytes, or a number with KiB, MiB or GiB, such as "64MiB"')
        if not self.least <= number <= self.most:
            raise ValueError(f"must be from {self.show(self.least)} to {self.show(self.most)}")
        return int(number)

    def show(self, value: int) -> str:
        return durations.show_size(value)


class Seconds(Kind[float]):
    """A duration: a number of seconds, or a number with a unit."""

    def __init__(self, least: float = 0.01, most: float = 30 * 86400.0) -> None:
        self.least = least
        self.most = most

    def read(self, value: object) -> float:
        number = durations.read_duration(value)
        if number is None:
            raise ValueError(f'must be {durations.EXPECTED}, such as "2.5s", "500ms" or "15m"')
        if not self.least <= number <= self.most:
            raise ValueError(f"must be from {self.show(self.least)} to {self.show(self.most)}")
        return number

    def show(self, value: float) -> str:
        return durations.show_duration(value)


class TextList(Kind[list[str]]):
    """Strings: a list, or one string with commas."""

    def read(self, value: object) -> list[str]:
        if isinstance(value, str):
            value = [word.strip() for word in value.split(",")] if value.strip() else []
        if not isinstance(value, list | tuple) or not all(isinstance(word, str) and word.strip() for word in value):
            raise ValueError("must be a list of strings, or one string separated by commas")
        return list(value)

    def show(self, value: list[str]) -> str:
        return ",".join(value)


class Urls(TextList):
    """Addresses to listen on."""

    def read(self, value: object) -> list[str]:
        urls = [str(parse_url(url.strip())) for url in super().read(value)]
        if not urls:
            raise ValueError("must have at least one address, such as tcp://127.0.0.1:5246")
        for i, url in enumerate(urls):
            if url in urls[:i] and not url.endswith(":0"):
                raise SettingError(f"{url} is listed twice")
        return urls


class Targets(TextList):
    """Addresses to connect to; may be empty."""

    def read(self, value: object) -> list[str]:
        return [str(parse_url(url.strip(), connect=True)) for url in super().read(value)]


class ListenAddress(Kind[str]):
    """An additional address to listen on; may be empty."""

    def read(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError("must be an address, such as tcp://127.0.0.1:5247, or empty for none")
        return str(parse_url(value.strip())) if value.strip() else ""


class Broadcast(Kind[str]):
    """The destination of broadcasts: HOST:PORT, ``on`` for the default address, or ``off``."""

    def read(self, value: object) -> str:
        if isinstance(value, bool):
            return "on" if value else "off"
        if isinstance(value, str):
            word = value.strip().lower()
            if word in _TRUE or word in _FALSE:
                return "on" if word in _TRUE else "off"
            host, _, port = word.rpartition(":")
            if _is_ipv4(host) and port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= 65535:
                return f"{host}:{int(port)}"
        raise ValueError("must be an IPv4 address and a port, such as 255.255.255.255:5245, or on, or off")


def _is_ipv4(text: str) -> bool:
    try:
        return bool(ipaddress.IPv4Address(text))
    except ValueError:
        return False


class Header(Kind[bytes]):
    """The first frame of a protocol: a string, or bytes in hex after ``0x``."""

    def __init__(self, *taken: bytes) -> None:
        self.taken = taken  # headers of other protocols on the same port

    def read(self, value: object) -> bytes:
        header = b""
        if isinstance(value, str) and value.startswith("0x"):
            try:
                header = bytes.fromhex(value[2:])
            except ValueError:
                raise ValueError("must be pairs of hex digits after 0x, such as 0x4d4458") from None
        elif isinstance(value, str):
            header = value.encode("utf-8", "surrogateescape")
        if not 1 <= len(header) <= 255:
            raise ValueError("must be a string of 1 to 255 bytes, or bytes in hex after 0x")
        if header in self.taken:
            raise ValueError("must differ from the headers of the other protocols on the port")
        return header

    def show(self, value: bytes) -> str:
        text = value.decode("ascii", "replace")
        # a string that begins with 0x would be read as hex
        return text if value.isascii() and text.isprintable() and not text.startswith("0x") else "0x" + value.hex()


class ObjectiveText(Kind[Objective]):
    """A latency objective."""

    def read(self, value: object) -> Objective:
        found = read_objective(value) if isinstance(value, str) else None
        if found is None:
            raise ValueError(f"must be {OBJECTIVE}")
        return found


class RateText(Kind[tuple[int, float]]):
    """Starts in a window."""

    def read(self, value: object) -> tuple[int, float]:
        found = read_rate(value) if isinstance(value, str) else None
        if found is None:
            raise ValueError(f"must be {RATE}")
        return found

    def show(self, value: tuple[int, float]) -> str:
        return ServiceLimits(starts=value[0], window=value[1]).rate()


class KeywordTable(Kind[dict[str, str]]):
    """A mapping of names to keywords: a TOML table, or ``name=word,name=word``."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def read(self, value: object) -> dict[str, str]:
        if isinstance(value, str):
            # split at the last "=", because a service name may contain one and a keyword cannot
            pairs = [pair.strip().rpartition("=") for pair in value.split(",")] if value.strip() else []
            value = {
                name.strip() if divider else word.strip(): word.strip() if divider else ""
                for name, divider, word in pairs
            }
        if not isinstance(value, dict):
            raise ValueError(f"must be a table, or name={self.words[0]},name={self.words[-1]}")
        for name, word in value.items():
            if not isinstance(name, str) or not name or word not in self.words:
                raise ValueError(f"must give {name!r} one of {', '.join(self.words)}")
        return dict(value)

    def show(self, value: dict[str, str]) -> str:
        return ",".join(f"{name}={word}" for name, word in value.items())


class Texts(Kind[dict[str, str]]):
    """A mapping of names to strings: a TOML table, or ``name=text; name=text``."""

    def read(self, value: object) -> dict[str, str]:
        if isinstance(value, str):
            pairs = [pair.partition("=") for pair in value.split(";") if pair.strip()]
            value = {name.strip(): text.strip() for name, _, text in pairs}
        if not isinstance(value, dict) or not all(
            isinstance(name, str) and name and isinstance(text, str) and text for name, text in value.items()
        ):
            raise ValueError('must be a table of names and strings, such as { upper = "Converts a text to capitals" }')
        return dict(value)

    def show(self, value: dict[str, str]) -> str:
        return "; ".join(f"{name}={text}" for name, text in value.items())


class CountTable(Kind[dict[str, int]]):
    """A mapping of names to integers: a TOML table, or ``name=number,name=number``."""

    def __init__(self, least: int = 1, most: int = 10**9) -> None:
        self.count = Count(least, most)

    def read(self, value: object) -> dict[str, int]:
        if isinstance(value, str):
            pairs = [pair.strip().rpartition("=") for pair in value.split(",")] if value.strip() else []
            value = {name.strip(): number for name, _, number in pairs}
        if not isinstance(value, dict) or not all(isinstance(name, str) and name for name in value):
            raise ValueError("must be a table, or name=number,name=number")
        return {name: self.count.read(number) for name, number in value.items()}

    def show(self, value: dict[str, int]) -> str:
        return ",".join(f"{name}={number}" for name, number in value.items())
