"""Durations, sizes and counts as short texts."""


def span(microseconds: int) -> str:
    """
    >>> [span(n * 1000) for n in (42, 3_210, 75_000, 3_700_000, 90_000_000)]
    ['42 ms', '3.2 s', '1 m 15 s', '1 h 01 m', '1 d 1 h']
    """
    seconds = microseconds / 1e6
    whole = int(seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if seconds < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def took(microseconds: int) -> str:
    """Like ``span``, with more digits for short times.

    >>> [took(n) for n in (0, 850, 4_200, 93_000, 2_100_000, 75_000_000, 7_320_000_000)]
    ['0 us', '850 us', '4.2 ms', '93 ms', '2.1 s', '1 m 15 s', '2 h 02 m']
    """
    if microseconds < 1_000:
        return f"{microseconds} us"
    if microseconds < 10_000:
        return f"{microseconds / 1e3:.1f} ms"
    return span(microseconds)


def framed_size(count: int) -> str:
    """The size of a body with its framing, which the journal records: 2 or 9 bytes more for each frame than what was sent.

    >>> framed_size(5)
    '5 B framed'
    """
    return f"{size(count)} framed"


def size(count: int) -> str:
    """
    >>> [size(n) for n in (12, 4096, 5_500_000, 12_638_259_200)]
    ['12 B', '4.0 KiB', '5.2 MiB', '11.8 GiB']
    """
    if count < 1024:
        return f"{count} B"
    if count < 1024 * 1024:
        return f"{count / 1024:.1f} KiB"
    if count < 1024 * 1024 * 1024:
        return f"{count / (1024 * 1024):.1f} MiB"
    return f"{count / (1024 * 1024 * 1024):.1f} GiB"


def counted(number: int, what: str) -> str:
    """
    >>> counted(1, "rule"), counted(2, "rule")
    ('1 rule', '2 rules')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"
