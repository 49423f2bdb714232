import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from polydomo.limits import CONNECT_TIME_LOCAL
from polydomo.server.settings.retired import RETIRED
from tests.cli.forking import FRESH
from tests.cli.shell import POLYDOMO, Broker, Gate, Running, complaint, environment, run, script

COMMANDS = ["services", "workers", "requests", "clients", "status"]


def text(broker: Broker, what: str) -> list[list[str]]:
    """The words of each line that a pipe gets."""
    result = run(what, "--to", broker.url)
    assert result.returncode == 0, result.stderr
    return [line.split() for line in result.stdout.decode().splitlines()]


def screen(broker: Broker, what: str) -> str:
    """What a terminal gets."""
    master, terminal = os.openpty()
    words = [*POLYDOMO, what, "--to", broker.url]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=terminal, env=environment(TERM="xterm"))
    os.close(terminal)
    said = b""
    with contextlib.suppress(OSError):  # how Linux says that the other side of a terminal has gone
        while piece := os.read(master, 4096):
            said += piece
    os.close(master)
    assert process.wait(120) == 0
    return said.decode()


def test_a_broker_that_is_slow_to_answer_is_waited_for(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        broker.process.send_signal(signal.SIGSTOP)
        wakes = threading.Timer(2 * CONNECT_TIME_LOCAL, broker.process.send_signal, [signal.SIGCONT])
        wakes.start()
        try:
            assert broker.ask("requests") == []
        finally:
            wakes.join()


def test_services(served: Broker) -> None:
    rows = {row["name"]: row for row in served.ask("services")}
    assert rows.keys() == {"echo", "upper", "broken", "seq"}
    assert rows["echo"]["workers"] == 1
    assert rows["seq"]["protocols"] == ["mdp2"]
    lines = text(served, "services")
    assert lines[0][:4] == ["SERVICE", "STATE", "PROTOCOLS", "WORKERS"]
    assert ["seq", "ready", "mdp2", "1", "1", "0", "-"] in [line[:7] for line in lines]


def test_services_count_what_became_of_requests(broker: Broker) -> None:
    with broker.worker("half", *script("read n; exit $n")):
        assert run("call", "half", "0\n", "--to", broker.url).returncode == 0
        assert run("call", "half", "1\n", "--to", broker.url).returncode == 1
        [row] = broker.ask("services")
        assert (row["requests"], row["answered"], row["failed"]) == (2, 1, 1)


def test_workers_name_protocol_and_dialect(served: Broker) -> None:
    rows = {row["services"][0]: row for row in served.ask("workers")}
    assert rows["echo"]["protocol"] == "mdx"
    assert rows["seq"]["protocol"] == "mdp2"
    assert "dialect" in rows["seq"]
    lines = text(served, "workers")
    assert lines[0][:5] == ["WORKER", "PROTOCOL", "DIALECT", "SERVICES", "STATE"]
    assert {line[4] for line in lines[1:]} == {"ready"}
    assert all(line[-2].startswith("tcp://127.0.0.1:") and line[-1] == "registered" for line in lines[1:])


def test_requests_show_since_when_and_why_they_wait(broker: Broker, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    assert broker.ask("requests") == []
    with contextlib.ExitStack() as stack:
        stack.enter_context(broker.worker("slow", *script(gate.script)))
        call = ["call", "slow", "--to", broker.url, "--timeout", "60", "--wait", "60"]
        stack.enter_context(Running(*call))
        gate.wait()
        stack.enter_context(Running(*call))
        stack.enter_context(Running("call", "nobody", "--to", broker.url, "--timeout", "60", "--wait", "60"))
        while len(rows := broker.ask("requests")) < 3:
            pass
        why = {row["why"] for row in rows}
        assert why == {"worker w1 has it", "its only worker is busy", "no worker offers it"}
        assert {row["state"] for row in rows} == {"running", "queued"}
        assert all(0 <= row["state_us"] <= row["age_us"] for row in rows)
        lines = run("requests", "--to", broker.url).stdout.decode().splitlines()
        assert lines[0].split()[-1] == "WHY"
        assert any(line.endswith("its only worker is busy") for line in lines)
        gate.open()
        gate.wait()  # the queued one has its turn
        gate.open()


def test_clients(served: Broker) -> None:
    [row] = served.ask("clients")
    assert row["protocol"] == "mdp1"
    assert text(served, "clients")[0][0] == "CLIENT"


def test_status(served: Broker) -> None:
    answer = served.ask("status")
    assert (answer["address"], answer["workers"], answer["draining"]) == (served.url, 4, False)
    assert ["workers", "4", "(4", "ready)"] in text(served, "status")


def test_a_terminal_gets_a_table(served: Broker) -> None:
    shown = screen(served, "workers")
    assert "dialect" in shown
    assert "─" in shown
    assert "mdp2" in shown


def test_a_name_cannot_steer_the_terminal(broker: Broker) -> None:
    with Running("work", "[red]\x1b[2Jx\n", "--echo", "--to", broker.url, "--log-json"):
        broker.logged("worker registered")
        shown = screen(broker, "services")
        assert "[red]\\x1b[2Jx\\n" in shown
        assert "\x1b[2J" not in shown
        assert "[red]\\x1b[2Jx\\n" in run("services", "--to", broker.url).stdout.decode()


def test_inspection_works_with_any_mdx_header(tmp_path: Path) -> None:
    with Broker(tmp_path, "--mdx-client-header", "OTHER") as broker:
        assert broker.ask("services") == []


@pytest.mark.parametrize("what", COMMANDS)
def test_no_broker(what: str, tmp_path: Path) -> None:
    result = run(what, "--to", f"ipc://{tmp_path}/s")
    assert result.returncode == 5
    assert "no broker answers" in complaint(result)


@contextlib.contextmanager
def answering(reply: bytes) -> Iterator[str]:
    """A listener that is not a broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):  # the listener was shut down
                while True:
                    peer, _ = server.accept()
                    with peer, contextlib.suppress(ConnectionError):
                        peer.sendall(reply)
                        while peer.recv(4096):
                            pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(("reply", "status"), [(b"HTTP/1.1 400 Bad Request\r\n\r\n", 1), (b"", 5)])
def test_a_server_that_is_not_a_broker(reply: bytes, status: int) -> None:
    with answering(reply) as url:
        result = run("status", "--to", url, **FRESH)
    assert result.returncode == status
    assert url in complaint(result)


def test_config_shows_value_default_and_source(tmp_path: Path) -> None:
    file = tmp_path / "polydomo.toml"
    file.write_text("attempts = 5\n")
    words = [
        "config",
        "--config",
        str(file),
        "--limits-max-message=2MiB",
        "--log-json",
        "--listen",
        "ipc:///a",
        "--listen",
        "ipc:///b",
    ]
    result = run(*words, "--json", POLYDOMO_GRACE="3s", POLYDOMO_TO="tcp://127.0.0.1:1")
    rows = {row["key"]: row for row in json.loads(result.stdout)}
    assert (rows["attempts"]["value"], rows["attempts"]["default"]) == ("5", "3")
    assert rows["attempts"]["source"] == f"file {file}"
    assert (rows["grace"]["value"], rows["grace"]["source"]) == ("3s", "variable POLYDOMO_GRACE")
    assert (rows["limits.max_message"]["value"], rows["limits.max_message"]["source"]) == (
        "2MiB",
        "flag --limits-max-message",
    )
    assert rows["log_json"]["value"] == "true"
    assert rows["listen"]["value"] == "ipc:///a,ipc:///b"
    assert rows["beat"]["source"] == "default"
    assert all(row["help"] for row in rows.values())
    assert run(*words).stdout.decode().splitlines()[0].split() == ["KEY", "VALUE", "DEFAULT", "SOURCE", "HELP"]


def test_a_setting_of_an_earlier_version_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "polydomo.toml"
    file.write_text('[mdp]\nbeat = "10s"\n')
    words = ("--config", str(file), "--dcp-max-held", "3")
    result = run("config", *words, POLYDOMO_JOURNAL_ROLL_ROWS="7")
    assert result.returncode == 0 and b"mdp.beat" not in result.stdout
    assert result.stderr.decode().splitlines() == [
        f"polydomo: mdp.beat (file {file}): setting has no effect any more: {RETIRED['mdp.beat']}",
        "polydomo: journal.roll_rows (variable POLYDOMO_JOURNAL_ROLL_ROWS): setting has no effect any more: "
        + RETIRED["journal.roll_rows"],
        f"polydomo: dcp.max_held (flag --dcp-max-held): setting has no effect any more: {RETIRED['dcp.max_held']}",
    ]
    with Broker(tmp_path / "data", *words) as broker:
        line = broker.logged("setting has no effect any more", key="mdp.beat")
        assert (line["level"], line["source"], line["why"]) == ("warning", f"file {file}", RETIRED["mdp.beat"])
        broker.logged("setting has no effect any more", key="dcp.max_held")


def test_config_finds_mistakes() -> None:
    result = run("config", POLYDOMO_GRACE="never")
    assert result.returncode == 2
    assert "POLYDOMO_GRACE" in complaint(result)
