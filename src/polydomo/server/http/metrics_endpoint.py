"""``GET /metrics``: the page of this process, or of all processes of the broker as one."""

from collections.abc import Callable
from typing import Final

from polydomo.broker.broker import Broker
from polydomo.server.http.metrics import CONTENT_TYPE
from polydomo.web.session import Endpoint, HttpSession, Poll
from polydomo.wire.http.head import HttpError, RequestHead

# All other figures of several processes add up.
HIGHEST: Final = frozenset(
    "polydomo_info polydomo_uptime_seconds polydomo_stopping polydomo_jobs_leading polydomo_jobs_store_failing process_max_fds".split()
)
NO_STORE = b"Cache-Control: no-store\r\n"


class MetricsPoll(Poll):
    """A response that waits for the other processes."""

    def __init__(self, session: HttpSession) -> None:
        self.session: HttpSession | None = session

    def abandoned(self) -> None:
        self.session = None


class MetricsEndpoint(Endpoint):
    def __init__(self, broker: Broker, render: Callable[[], bytes]) -> None:
        self._broker = broker
        self._render = render

    def check(self, session: HttpSession, head: RequestHead, path: "list[str]") -> None:
        if path not in ([], [""]):
            raise HttpError(404, f"nothing is served at {head.path[:200]}; see docs/http.md", close=False)

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        siblings = self._broker.siblings
        if self._broker.process.count == 1:
            session.reply(200, CONTENT_TYPE, self._render(), NO_STORE)
            return
        poll = MetricsPoll(session)
        session.carried = poll

        def done(pages: "list[bytes]") -> None:
            if poll.session is not None:
                poll.session.carried = None
                poll.session.reply(200, CONTENT_TYPE, merge_pages(pages, self._broker.process.count), NO_STORE)

        siblings.gather_metrics(done)


def merge_pages(pages: "list[bytes]", count: int) -> bytes:
    """One page: the samples of a series add up, and ``polydomo_processes`` says how many processes there are and how many answered.

    >>> print(merge_pages([b"# TYPE a counter\\na 1\\n", b"# TYPE a counter\\na 2\\na{b=\\"c\\"} 1\\n"], 2).decode().partition("# HELP")[0])
    # TYPE a counter
    a 3
    a{b="c"} 1
    <BLANKLINE>
    """
    families: dict[str, list[str]] = {}  # name -> its comment lines
    samples: dict[str, dict[str, float]] = {}  # family -> series -> value
    for page in pages:
        family = ""
        for line in page.decode().splitlines():
            if line.startswith("#"):
                family = line.split(" ", 3)[2]
                comments = families.setdefault(family, [])
                if line not in comments:
                    comments.append(line)
            elif line:
                series, _, text = line.rpartition(" ")
                value = float(text)
                found = samples.setdefault(family, {})
                if family in HIGHEST:
                    found[series] = max(found.get(series, value), value)
                else:
                    found[series] = found.get(series, 0.0) + value
    lines: list[str] = []
    for family, comments in families.items():
        lines += comments
        for series, value in samples.get(family, {}).items():
            lines.append(f"{series} {int(value) if value.is_integer() else value!r}")
    lines.append("# HELP polydomo_processes Processes of the broker, and how many of them this page is from.")
    lines.append("# TYPE polydomo_processes gauge")
    lines.append(f'polydomo_processes{{state="configured"}} {count}')
    lines.append(f'polydomo_processes{{state="answered"}} {len(pages)}')
    return "\n".join([*lines, ""]).encode()
