"""``trace``, ``requests`` with filters, ``tap`` and ``spans`` against a real broker that journals, and without one."""

import json
import select
import signal
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

import polydomo
from polydomo.cli.journal import search
from tests.cli.shell import Broker, Running, complaint, run


@pytest.fixture(scope="module")
def journalled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that has answered three requests and failed one."""
    with Broker(tmp_path_factory.mktemp("journalled"), "--journal", "messages", "--service", "echo.bodies") as broker:
        worker = polydomo.Worker(broker.url)
        worker.add("echo", lambda call: call.body)
        worker.add("broken", fail)
        with worker, polydomo.Client(broker.url) as client:
            for word in ("a", "b", "c"):
                client.call("echo", word)
            with pytest.raises(polydomo.CallFailed):
                client.call("broken", "x")
        yield broker


def fail(call: polydomo.Call) -> bytes:
    raise RuntimeError("out of paint")


def found(broker: Broker, *words: str) -> list[dict[str, Any]]:
    result = run("requests", "--to", broker.url, "--json", *words)
    assert result.returncode == 0, result.stderr
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


def test_requests_are_found_up_to_this_moment(journalled: Broker) -> None:
    assert len(found(journalled, "--since", "10m")) >= 4
    assert {row["service"] for row in found(journalled, "--service", "echo")} == {"echo"}
    (failed,) = found(journalled, "--since", "10m", "--outcome", "failed")
    assert failed["service"] == "broken" and "out of paint" in failed["reason"]
    assert found(journalled, "--slower", "1h") == []
    assert len(found(journalled, "--since", "10m", "--most", "2")) == 2


def test_requests_as_a_table(journalled: Broker) -> None:
    result = run("requests", "--to", journalled.url, "--since", "10m")
    lines = result.stdout.decode().splitlines()
    assert lines[0].split()[:4] == ["REQUEST", "ENDED", "SERVICE", "OUTCOME"]
    assert "FRAMED SIZE  FRAMED REPLY" in lines[0], "the journal has no other size"
    assert len(lines) >= 5


def test_an_outcome_that_is_none(journalled: Broker) -> None:
    result = run("requests", "--to", journalled.url, "--outcome", "fine")
    assert result.returncode == 2 and "must be one of ok, failed, " in complaint(result)


def test_a_story(journalled: Broker) -> None:
    first = found(journalled, "--service", "echo")[0]
    result = run("trace", first["request"], "--to", journalled.url)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.decode().splitlines()
    assert lines[0].startswith(f"{first['request']} to `echo`: answered after")
    assert "called `echo`" in lines[2] and "dispatched to w" in lines[3] and "answered after" in lines[4]
    by_number = run("trace", str(first["number"]), "--to", journalled.url, "--json")
    assert json.loads(by_number.stdout)["request"] == first["request"]


def test_the_trace_of_a_flow(journalled: Broker) -> None:
    flow = polydomo.Flow("letters")
    flow.call("echo", flow.map("echo", ["a", "b"]), name="both")
    worker = polydomo.Worker(journalled.url)
    worker.add("echo", lambda call: call.body)
    with worker, polydomo.Client(journalled.url) as client:
        started = client.start(flow)
        assert started.wait(60) == "done"
        result = run("trace", started.id, "--to", journalled.url)
        in_json = run("trace", started.id, "--to", journalled.url, "--json")
    lines = result.stdout.decode().splitlines()
    assert result.returncode == 0, complaint(result)
    assert lines[0].startswith(f"{started.id} flow `letters`: done after "), result
    assert any("both released after 0-1" in line for line in lines)
    assert "These nodes determined how long it took:" in lines
    story = json.loads(in_json.stdout)
    assert story["request"] == started.id and story["steps"][0]["event"] == "flow started"
    assert [step["event"] for step in story["steps"]].count("job done") == 3


def test_a_trace_from_the_directory_without_a_broker(journalled: Broker, tmp_path: Path) -> None:
    first = found(journalled, "--service", "echo")[0]
    status = json.loads(run("call", "polydomo.journal", "--to", journalled.url).stdout)
    result = run("trace", first["request"], "--journal", status["directory"], cwd=tmp_path)
    assert result.returncode == 0 and first["request"].encode() in result.stdout


@pytest.mark.parametrize("request_", ["01M7FASHP2YYXW4X5800000002", "99999"])
def test_an_unknown_request(journalled: Broker, request_: str) -> None:
    result = run("trace", request_, "--to", journalled.url)
    assert result.returncode == 1 and f"has no rows of a request, job or flow {request_}" in complaint(result)


def test_a_client_id_that_no_request_has(journalled: Broker) -> None:
    result = run("trace", "what?", "--to", journalled.url)
    assert result.returncode == 1 and "nor of a request to which its client gave that id" in complaint(result)


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def asked_with_own_id(broker: Broker, protocol: str) -> str:
    """Calls ``echo`` in the raw frames of a protocol, with an id of the client's own; returns the id."""
    if protocol == "http":
        headers = {"traceparent": TRACE}
        call = urllib.request.Request(f"{broker.url.replace('tcp', 'http')}/v1/call/echo", b"hi", headers)
        with urllib.request.urlopen(call, timeout=30) as answer:
            assert answer.read() == b"hi"
        return TRACE
    identity = f"{protocol}-{uuid.uuid4()}"
    own = identity.encode()
    frames = {
        "mdx": [b"MDXC01", b"\x01", b"echo", own, b"hi"],
        "emqp": [b"", b"eMQP/1.0", b"REQUEST", own, b"echo", b"reply-requested", b"hi"],
        "dcp": [b"", b"DGBX\x01", b"\x04", b"echo", b"", own, b"part", b"", b"hi"],
    }[protocol]
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.connect(broker.url)
        socket.send_multipart(frames)
        assert socket.poll(30_000)
        assert b"hi" in socket.recv_multipart()
        socket.close(0)
    return f"{identity} part" if protocol == "dcp" else identity


@pytest.mark.parametrize("protocol", ["mdx", "emqp", "dcp", "http"])
def test_a_request_is_found_by_the_id_that_its_client_gave_it(journalled: Broker, protocol: str) -> None:
    worker = polydomo.Worker(journalled.url)
    worker.add("echo", lambda call: call.body)
    with worker:
        identity = asked_with_own_id(journalled, protocol)
        (row,) = found(journalled, "--client-id", identity)
        assert (row["client_protocol"], row["service"]) == (protocol, "echo")
        assert row["trace" if protocol == "http" else "client_id"] == identity
        for name in (identity, TRACE.split("-")[1]) if protocol == "http" else (identity,):
            traced = run("trace", name, "--to", journalled.url)
            assert traced.stdout.decode().startswith(row["request"]), traced.stderr
    assert found(journalled, "--client-id", "nobody") == []


def test_a_broker_without_a_journal(tmp_path: Path) -> None:
    with Broker(tmp_path, "--journal", "off") as broker:
        result = run("trace", "1", "--to", broker.url)
        assert result.returncode == 1 and "keeps no journal; start it with --journal" in complaint(result)
    assert not (tmp_path / "journal").exists()


def test_no_broker_and_no_journal(tmp_path: Path) -> None:
    result = run("requests", "--since", "1m", "--to", "tcp://127.0.0.1:9", cwd=tmp_path)
    assert result.returncode == 5 and "--journal DIR" in complaint(result)
    result = run("requests", "--since", "1m", "--journal", "nowhere", cwd=tmp_path)
    assert result.returncode == 2 and "no such directory: nowhere" in complaint(result)


def test_the_journal_is_the_default_and_needs_no_flag(tmp_path: Path) -> None:
    with Broker(tmp_path, "--journal=requests") as broker:
        with polydomo.Client(broker.url) as client:
            assert client.call("polydomo.journal").json()["level"] == "requests"
    assert list((tmp_path / "journal").glob("kind=messages/*/*/*.parquet"))


def test_a_tap_shows_the_command_names_of_each_protocol(journalled: Broker) -> None:
    with Running(
        "tap", "--to", journalled.url, "--service", "echo", "--event", "final", "--event", "accepted", "--count", "3"
    ) as tap:
        worker = polydomo.Worker(journalled.url, "mdp1")
        worker.add("echo", lambda call: call.body)
        with worker, polydomo.Client(journalled.url, "memo") as client:
            while tap.process.poll() is None:  # until the tap has seen three
                client.call("echo", "hello")
        assert tap.status() == 0
        lines = [tap.line().decode() for _ in range(3)]
    asked = next(line for line in lines if "accepted" in line)  # it may have come in the middle of a call
    answered = next(line for line in lines if "final" in line)
    assert " memo  <- JOB " in asked and "hello" in asked
    assert " mdp1  <- REPLY " in answered and " ok " in answered


def test_a_tap_for_programs_and_its_mistakes(journalled: Broker) -> None:
    with Running("tap", "--to", journalled.url, "--json", "--event", "connected") as tap:
        with polydomo.Client(journalled.url) as client:
            while True:
                with polydomo.Client(journalled.url) as other:
                    assert other.call("mmi.service", "echo").text in ("200", "404")
                if json.loads(client.call("polydomo.clients").text) and _has_line(tap):
                    break
        assert json.loads(tap.line())["event"] == "connected"
        tap.send(signal.SIGINT)
        assert tap.status() == 130
    result = run("tap", "--protocol", "smtp", "--to", journalled.url)
    assert result.returncode == 2
    assert complaint(result).startswith("--protocol: 'smtp' is not one of mdx, mdp1,")
    result = run("tap", "--event", "explosion", "--to", journalled.url)
    assert result.returncode == 2 and "not 'explosion'" in complaint(result)


def _has_line(running: Running) -> bool:
    assert running.process.stdout is not None
    return bool(select.select([running.process.stdout], [], [], 0.05)[0])


def test_spans_are_printed(journalled: Broker) -> None:
    pytest.importorskip("opentelemetry.sdk")
    result = run("spans", "--to", journalled.url)
    assert result.returncode == 0, result.stderr
    spans = [json.loads(line) for line in result.stdout.decode().splitlines()]
    names = {span["name"] for span in spans}
    assert {"request echo", "work echo", "request broken"} <= names


def test_spans_whose_reader_has_seen_enough(journalled: Broker) -> None:
    pytest.importorskip("opentelemetry.sdk")
    with Running("spans", "--to", journalled.url) as spans:
        assert spans.process.stdout is not None
        spans.process.stdout.close()
        assert spans.status() == 0
        assert spans.said == []


def test_without_pyarrow_no_journal_is_kept_and_one_line_reports_it(tmp_path: Path) -> None:
    hide = tmp_path / "hide"
    hide.mkdir()
    (hide / "sitecustomize.py").write_text(
        "import importlib.util as u\nfound = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'pyarrow' else found(name, *rest)\n"
    )
    asked = run(
        "up", "--journal", "messages", "--data", str(tmp_path), "--listen", "tcp://127.0.0.1:0", PYTHONPATH=str(hide)
    )
    assert asked.returncode == 2
    assert "journal.level (flag --journal): the journal cannot record messages: pyarrow is not installed" in complaint(
        asked
    )
    with Running(
        "up", "--data", str(tmp_path), "--listen", "tcp://127.0.0.1:0", "--log-json", PYTHONPATH=str(hide)
    ) as broker:
        assert "pip install 'polydomo[journal]'" in broker.logged("no journal is kept")["why"]
        broker.logged("ready")


@pytest.mark.parametrize("words", ["requests --since 1m", "trace 1", "replay .", "report"])
def test_without_pyarrow_a_command_that_reads_a_journal_reports_it(tmp_path: Path, words: str) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyarrow'] = None\n")
    result = run(*words.split(), cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert "needs pyarrow (pip install 'polydomo[journal]')" in complaint(result)
    assert result.returncode == 2


def test_a_second_broker_in_the_same_directory_runs_without_a_journal_unless_one_was_asked_for(tmp_path: Path) -> None:
    with Broker(tmp_path, default_journal=True) as first:
        assert first.url
        with Broker(tmp_path, default_journal=True) as second:
            assert "another broker writes the journal" in second.logged("no journal is kept")["why"]
        # The usual mistake: just the line that matters.
        result = run("up", "--data", str(tmp_path), "--listen", first.url)
        assert result.returncode == 2 and "already in use" in complaint(result)
        result = run("up", "--data", str(tmp_path), "--listen", "tcp://127.0.0.1:0", "--journal", "requests")
        assert result.returncode == 2 and "another broker writes the journal" in complaint(result)


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("No space left on device", "cannot write its journal: No space left on device; the newest rows are missing"),
        ("", "has not written its journal within 0.2 s; the newest rows may be missing"),
    ],
)
def test_a_journal_that_is_not_written_is_reported(
    trouble: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = {"directory": str(tmp_path), "run": "ADBB8K4C", "rows": 4, "safe": 3, "dropped": 0, "trouble": trouble}

    async def answer(client: object, service: str, question: bytes) -> Any:
        return SimpleNamespace(json=lambda: status)

    monkeypatch.setattr(search, "read", answer)
    monkeypatch.setattr(search, "FLUSH_TIME", 0.2)
    search.find(None, "tcp://127.0.0.1:5246")
    assert said in capsys.readouterr().err


def test_a_directory_without_a_journal_is_reported(tmp_path: Path) -> None:
    result = run("requests", "--since", "1h", "--journal", str(tmp_path))
    assert result.returncode == 0
    assert f"the journal in {tmp_path} is still empty" in result.stderr.decode()
