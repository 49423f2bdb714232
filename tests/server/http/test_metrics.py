"""The page for Prometheus: it is well formed, every family occurs once, and every figure matches the broker."""

import re

import pytest

import polydomo
from polydomo import testing
from polydomo.broker.observe.recorder import Recorder
from polydomo.client.publisher import Publisher
from polydomo.journal.levels import Levels
from polydomo.journal.recording.chunk import Run
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.server.http import metrics
from polydomo.server.logs import INTERNAL_ERRORS
from polydomo.server.server import BrokerServer
from polydomo.server.settings.sections import Bridge
from polydomo.server.settings.settings import Settings

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'({NAME})(?:\{{((?:{NAME}="(?:[^"\\\n]|\\["\\n])*",?)*)\}})? ([0-9.e+-]+|\+Inf)')
LABEL = re.compile(rf'({NAME})="((?:[^"\\\n]|\\["\\n])*)"')

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parse(text: str) -> tuple[dict[str, str], Samples]:
    """Types by family, and the samples; fails on anything that the format does not allow."""
    types: dict[str, str] = {}
    samples: Samples = {}
    helped: set[str] = set()
    current = ""
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split(" ", 3)[2]
            assert current not in helped, "a family is told twice"
            helped.add(current)
            assert len(line.split(" ", 3)) == 4
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current and kind in ("counter", "gauge", "histogram")
            types[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            name = match[1]
            family = re.sub("_(bucket|sum|count)$", "", name) if types[current] == "histogram" else name
            assert family == current, f"{name} stands under {current}"
            key = (name, tuple(LABEL.findall(match[2] or "")))
            assert key not in samples, f"{key} is there twice"
            samples[key] = float(match[3])
    for name, kind in types.items():
        assert (kind == "counter") <= name.endswith("_total"), name
    return types, samples


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[(name, tuple(labels.items()))]


def test_the_figures_of_a_broker_at_work() -> None:
    with testing.broker(settings=Settings(queue_expiry=0.05)) as broker:
        worker = polydomo.Worker(broker.url)
        worker.add("shout", lambda call: call.text.upper())
        with worker, polydomo.Client(broker.url) as client, polydomo.Client(broker.url, "mdp1") as other:
            for _ in range(5):
                client.call("shout", "x")
            other.call("shout", "x")
            with pytest.raises(polydomo.NoSuchService):
                client.call("nobody", "x")
            broker.wait_until(lambda server: not server.broker.open_requests)
            pages: list[str] = []

            def render(server: BrokerServer) -> bool:
                pages.append(metrics.render(server))
                return True

            broker.wait_until(render)
            types, samples = parse(pages[0])
    assert value(samples, "polydomo_requests_total", service="shout", protocol="mdx", outcome="ok") == 5
    assert value(samples, "polydomo_requests_total", service="shout", protocol="mdp1", outcome="ok") == 1
    assert sum(count for (name, _), count in samples.items() if name == "polydomo_requests_total") == 7
    assert value(samples, "polydomo_request_seconds_count", service="shout", protocol="mdx") == 5
    assert value(samples, "polydomo_request_seconds_bucket", service="shout", protocol="mdx", le="+Inf") == 5
    assert value(samples, "polydomo_request_seconds_sum", service="shout", protocol="mdx") > 0
    assert value(samples, "polydomo_workers", protocol="mdx", state="ready") == 1
    assert value(samples, "polydomo_service_workers", service="shout") == 1
    assert value(samples, "polydomo_service_queue", service="shout") == 0
    assert value(samples, "polydomo_connections") == 3
    assert value(samples, "polydomo_connections_total") >= 3
    assert value(samples, "polydomo_received_bytes_total") > 100
    assert value(samples, "polydomo_sent_bytes_total") > 100
    assert types["polydomo_request_seconds"] == "histogram"
    buckets = [
        count
        for (name, labels), count in samples.items()
        if name.endswith("_bucket") and ("service", "shout") in labels and ("protocol", "mdx") in labels
    ]
    assert buckets == sorted(buckets) and len(buckets) == len(metrics.BOUNDS) + 1


class Counting(Recorder):
    def figures(self) -> dict[str, float]:
        return {"rows": 12, "segments": 3}


def test_counters_of_the_recorder_are_included() -> None:
    server = BrokerServer(Settings(listen=["tcp://127.0.0.1:0"]), Counting())
    _, samples = parse(metrics.render(server))
    assert value(samples, "polydomo_journal_rows") == 12
    assert value(samples, "polydomo_journal_segments") == 3


def test_the_row_count_of_the_journal_is_included() -> None:
    journal = JournalRecorder(Run("x", 1, 0.0), Levels("requests"))
    server = BrokerServer(Settings(listen=["tcp://127.0.0.1:0"]), journal)
    journal.attach(server.broker)
    journal.begin("a test")
    _, samples = parse(metrics.render(server))
    assert value(samples, "polydomo_journal_rows") == 1
    assert value(samples, "polydomo_journal_rows_dropped") == 0
    assert value(samples, "polydomo_internal_errors_total") == INTERNAL_ERRORS.total


def test_last_values_logs_and_bridges_are_included() -> None:
    with testing.broker() as far:
        bridge = Settings(bridge=Bridge(to=[far.url], topics=["log."]))
        worker = polydomo.Worker(far.url)
        worker.add("echo", lambda call: call.text)
        with testing.broker(settings=bridge) as near, worker, Publisher(near.url) as publisher:
            publisher.publish("weather.oslo", "snow")
            publisher.publish("log.x", '{"message": "hello"}')
            pages: list[str] = []

            def render(server: BrokerServer) -> bool:
                if (
                    len(server.broker.publishing.last_values) != 1
                    or not server.broker.publishing.log_records.taken
                    or not server.broker.has_worker(b"echo")
                ):
                    return False
                pages.append(metrics.render(server))
                return True

            near.wait_until(render)
    _, samples = parse(pages[0])
    assert value(samples, "polydomo_publications_total") >= 1
    assert value(samples, "polydomo_values") == 1 and value(samples, "polydomo_value_bytes") > len("weather.oslosnow")
    assert value(samples, "polydomo_values_forgotten_total") == 0
    assert value(samples, "polydomo_log_records_total") == 1
    assert value(samples, "polydomo_subscriptions") == 1  # the other broker's
    assert value(samples, "polydomo_bridges") == 1 and value(samples, "polydomo_bridge_services") == 1
    assert value(samples, "polydomo_bridge_requests") == 0


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "ä", "{}", ""])
def test_any_name_is_written_so_that_it_can_be_read(name: str) -> None:
    line = metrics.sample("polydomo_x", {"service": name}, 1)
    match = SAMPLE.fullmatch(line)
    assert match is not None
    ((_, written),) = LABEL.findall(match[2])
    assert written.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\") == name


def test_labels_are_unique_and_have_no_control_characters() -> None:
    names = [
        b"\xff",
        b"\\xff",
        b"\\\\xff",
        b"\x1b[31m",
        b"\\x1b[31m",
        b"a\nb",
        b"a\\nb",
        b'a"b',
        "caf\u00e9".encode(),
        b"caf\xe9",
    ]
    names += [b"\xc2\x85", b"\\xc2\\x85", "\u2028".encode(), b"+other", b"\\x2bother", b"other"]
    labels = [metrics.label(name) for name in names]
    assert len(set(labels)) == len(names)
    assert all(words.isprintable() and words != metrics.OTHER for words in labels)


def test_services_past_the_bound_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polydomo.limits.METRICS_SERVICES", 3)
    with testing.broker() as broker:
        worker = polydomo.Worker(broker.url)
        for number in range(5):
            worker.add(f"s{number}", lambda call: call.text)
        with worker, polydomo.Client(broker.url) as client:
            for number in range(5):
                client.call(f"s{number}", "x")
            pages: list[str] = []

            def render(server: BrokerServer) -> bool:
                pages.append(metrics.render(server))
                return True

            broker.wait_until(render)
    _, samples = parse(pages[0])
    assert value(samples, "polydomo_service_workers", service=metrics.OTHER) == 2
    assert value(samples, "polydomo_requests_total", service=metrics.OTHER, protocol="mdx", outcome="ok") == 2
    shown = {labels for name, labels in samples if name == "polydomo_requests_total"}
    assert len(shown) == 4


def test_a_page_is_rendered_once_for_many_scrapes(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[int] = []

    def render(server: BrokerServer) -> str:
        rendered.append(1)
        return f"page {len(rendered)}\n"

    monkeypatch.setattr(metrics, "render", render)
    page = metrics.MetricsPage(BrokerServer(Settings()))
    assert {page.get() for _ in range(100)} == {b"page 1\n"}
    monkeypatch.setattr("polydomo.server.http.metrics.time.monotonic", lambda: page._until)
    assert page.get() == b"page 2\n"
