import base64
import json
import signal
import socket
from pathlib import Path

import pytest

from polydomo import Worker
from tests.cli.shell import Broker, Gate, Running, complaint, run, run_into_timeout, script

PROTOCOLS = ["mdx", "mdp1", "mdp2", "dcp", "memo", "emqp"]
BINARY = bytes(range(256)) * 300


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol(served: Broker, protocol: str) -> None:
    result = run("call", "upper", "hello", "--to", served.url, "--protocol", protocol)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"HELLO\n", b"")


def test_headers(broker: Broker) -> None:
    worker = Worker(broker.url, "emqp")
    worker.add("told", lambda call: json.dumps(call.headers))
    with worker:
        observed = [
            "call",
            "told",
            "--to",
            broker.url,
            "--protocol",
            "emqp",
            "--header",
            "x-rush",
            "--header",
            "x-order: 17",
        ]
        result = run(*observed, "--wait", "20")
    headers = json.loads(result.stdout)
    assert (headers.pop("reply-requested"), int(headers.pop("timeout")) <= 30) == ("", True)
    assert headers == {"x-rush": "", "x-order": "17"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--header", "x:y"], "--header: only emqp has headers, not mdx"),
        (
            ["--header", "x:y,z", "-p", "emqp"],
            "--header: invalid value 'y,z' of x; a value has no commas or surrounding spaces",
        ),
        (["--header", "timeout:3", "-p", "emqp"], "--header: timeout is set automatically with every call; remove it"),
    ],
)
def test_invalid_headers(words: list[str], says: str) -> None:
    result = run("call", "echo", "x", *words)
    assert (result.returncode, complaint(result)) == (2, says)


def test_each_argument_is_a_frame_and_each_frame_a_line(served: Broker) -> None:
    assert run("call", "echo", "one", "two", "", "--to", served.url).stdout == b"one\ntwo\n\n"


def test_no_body_is_an_empty_one(served: Broker) -> None:
    assert json.loads(run("call", "echo", "--json", "--to", served.url).stdout) == {"final": True, "frames": [""]}


def test_the_variable_names_the_broker(served: Broker) -> None:
    assert run("call", "echo", "hello", POLYDOMO_TO=served.url).stdout == b"hello\n"


def test_standard_input_and_raw_keep_every_byte(served: Broker) -> None:
    result = run("call", "echo", "-", "--raw", "--to", served.url, stdin=BINARY)
    assert result.returncode == 0
    assert result.stdout == BINARY


def test_a_frame_from_standard_input_among_others(served: Broker) -> None:
    assert run("call", "echo", "a", "-", "b", "--raw", "--to", served.url, stdin=b"\xff").stdout == b"a\xffb"


def test_an_argument_that_is_not_utf8(served: Broker) -> None:
    # surrogateescape is how Python passes such an argument on
    result = run("call", "echo", b"\xfe".decode("utf-8", "surrogateescape"), "--raw", "--to", served.url)
    assert result.stdout == b"\xfe"


def test_bytes_that_are_no_text_are_escaped_as_text_and_base64_in_json(served: Broker) -> None:
    assert run("call", "echo", "-", "--to", served.url, stdin=b"a\xff").stdout == b"a\\xff\n"
    frames = json.loads(run("call", "echo", "-", "--json", "--to", served.url, stdin=b"a\xff").stdout)["frames"]
    assert frames == [{"base64": base64.b64encode(b"a\xff").decode()}]


def test_partials_in_json(served: Broker) -> None:
    lines = run("call", "seq", "--json", "--to", served.url).stdout.splitlines()
    assert [json.loads(line)["frames"] for line in lines] == [["1"], ["2"], ["3"]]


def test_partials_are_printed_as_they_come(broker: Broker, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with broker.worker("steps", "--lines", *script(f"echo one; {gate.script}; echo two")):
        with Running("call", "steps", "--to", broker.url) as call:
            assert call.line() == b"one\n"
            gate.wait()
            gate.open()
            assert call.line() == b"two\n"
            assert call.status() == 0


# --- exit statuses ----------------------------------------------------------------------------------------------------


def test_1_the_worker_failed(served: Broker) -> None:
    result = run("call", "broken", "--to", served.url)
    assert result.returncode == 1
    assert complaint(result) == "failed: no such colour"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "127.0.0.1"], "--to"),
        (["--protocol", "smtp"], "protocol"),
        (["--raw", "--json"], "--raw and --json"),
        (["-", "-"], "only once"),
    ],
)
def test_2_a_flag_is_wrong(words: list[str], said: str) -> None:
    result = run("call", "echo", *words)
    assert result.returncode == 2
    assert said in complaint(result)


def test_2_an_option_that_does_not_exist() -> None:
    result = run("call", "echo", "--no-such-option")
    assert result.returncode == 2
    assert b"--no-such-option" in result.stderr
    assert b"Traceback" not in result.stderr


def test_3_no_reply_in_time(broker: Broker, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with broker.worker("slow", *script(gate.script)):
        result, _ = run_into_timeout("call", "slow", "--to", broker.url)
        assert "slow" in complaint(result)


@pytest.mark.parametrize("protocol", ["mdx", "mdp1"])
def test_a_failed_call_says_that_the_service_is_paused(broker: Broker, protocol: str) -> None:
    with broker.worker("echo", "--echo"):
        assert run("pause", "echo", "--to", broker.url).returncode == 0
        result, timeout = run_into_timeout("call", "echo", "hi", "--to", broker.url, "--protocol", protocol)
        said = f"no reply from echo within {timeout} s: the service is paused; `polydomo resume echo` resumes it"
        assert complaint(result) == said
    result = run("call", "echo", "hi", "--wait", "0", "--to", broker.url, "--protocol", protocol)
    assert result.returncode == 4
    said = "the service 'echo' is paused, and no worker offers it; `polydomo resume echo` resumes it"
    assert complaint(result) == said


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_exit_status_4_if_no_worker_offers_the_service(served: Broker, protocol: str) -> None:
    result = run("call", "ecoh", "hello", "--wait", "0", "--to", served.url, "--protocol", protocol)
    assert result.returncode == 4
    assert complaint(result) == "no worker offers 'ecoh'; did you mean 'echo'?"


def test_4_and_nothing_is_called_alike(served: Broker) -> None:
    result = run("call", "weather", "--wait", "0", "--to", served.url)
    assert result.returncode == 4
    said = f"no worker offers 'weather'; `polydomo services --to {served.url}` lists the available services"
    assert complaint(result) == said


def test_the_call_waits_for_a_worker_that_registers_in_time(broker: Broker) -> None:
    with Running("call", "late", "hello", "--wait", "30", "--timeout", "60", "--to", broker.url) as call:
        while not broker.ask("requests"):
            assert call.process.poll() is None
        with broker.worker("late", "--echo"):
            assert call.line() == b"hello\n"
            assert call.status() == 0


def test_5_no_broker_answers() -> None:
    with socket.socket() as held:  # bound and not listening: nobody else can have the port
        held.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{held.getsockname()[1]}"
        result = run("call", "echo", "hello", "--to", url)
    assert result.returncode == 5
    assert complaint(result) == f"no broker answers at {url}; start one with `polydomo up --listen {url}`"


def test_5_no_broker_answers_at_a_socket(tmp_path: Path) -> None:
    result = run("call", "echo", "hello", "--to", f"ipc://{tmp_path}/s")
    assert result.returncode == 5
    assert complaint(result).startswith(f"no broker answers at ipc://{tmp_path}/s; start one with")


def test_5_the_broker_is_killed(broker: Broker, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with broker.worker("slow", *script(gate.script)), Running("call", "slow", "--to", broker.url) as call:
        gate.wait()
        broker.process.kill()
        assert call.status() == 5
        assert len(call.said) == 1
        gate.open()


def test_ctrl_c_is_clean(broker: Broker, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with broker.worker("slow", *script(gate.script)), Running("call", "slow", "--to", broker.url) as call:
        gate.wait()
        call.send(signal.SIGINT)
        assert call.status() == 130
        call.wait_until(lambda: call.said == [], "silence")


def test_a_reader_that_has_seen_enough(broker: Broker, tmp_path: Path) -> None:
    with broker.worker("many", "--lines", *script("seq 100000")):
        with Running("call", "many", "--to", broker.url) as call:
            assert call.line() == b"1\n"
            assert call.process.stdout is not None
            call.process.stdout.close()
            assert call.status() == 0
            assert call.said == []
