import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from polydomo.cli.common import flags
from tests.cli.shell import PATIENCE, POLYDOMO, Broker, Gate, Running, complaint, environment, run, script
from tests.server.harness import wait_for


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_with_status_0(tmp_path: Path, number: signal.Signals) -> None:
    with Broker(tmp_path) as broker:
        host, port = broker.url.removeprefix("tcp://").split(":")
        socket.create_connection((host, int(port))).close()
        broker.send(number)
        assert broker.status() == 0
        assert broker.logged("stopping")["signal"] == number.name
        broker.logged("stopped")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))


def test_a_request_in_flight_is_finished_before_it_stops(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with (
        Broker(tmp_path, "--grace", "5m") as broker,
        broker.worker("slow", *script(f"{gate.script}; echo done")),
    ):
        with Running("call", "slow", "--to", broker.url) as call:
            gate.wait()
            broker.send(signal.SIGTERM)
            broker.logged("stopping")
            gate.open()
            assert call.line() == b"done\n"
            assert call.status() == 0
            assert broker.status() == 0


def test_stopped_is_the_last_line_also_where_many_workers_left(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, broker.worker("echo", "--echo", "--concurrency", "9", "--connections", "9"):
        wait_for(lambda: len(broker.ask("workers")) == 9, "nine workers")
        broker.send(signal.SIGTERM)
        assert broker.status() == 0
        assert any(entry["message"].startswith("worker left, and ") for entry in broker.entries)
        assert broker.entries[-1]["message"] == "stopped"


def test_it_serves_without_standard_streams(tmp_path: Path) -> None:
    url = f"ipc://{tmp_path}/broker"
    words = shlex.join([*POLYDOMO, "up", "--listen", url, "--data", str(tmp_path)])
    process = subprocess.Popen(["sh", "-c", f"exec {words} <&- >&- 2>&-"], env=environment())
    try:
        wait_for(lambda: process.poll() is not None or run("status", "--to", url).returncode == 0, "the broker")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()


def test_the_grace_time_ends_the_wait(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with Broker(tmp_path, "--grace", "50ms") as broker, broker.worker("slow", *script(gate.script)):
        with Running("call", "slow", "--to", broker.url) as call:
            gate.wait()
            broker.send(signal.SIGTERM)
            assert broker.status() == 0
            assert broker.logged("grace time is over")["open_requests"] == 1
            assert call.status() in (1, 5)  # told of the shutdown, or the connection went first
        gate.open()


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with Broker(tmp_path, "--grace", "1h") as broker, broker.worker("slow", *script(gate.script)):
        with Running("call", "slow", "--to", broker.url) as call:
            gate.wait()
            broker.send(signal.SIGTERM)
            broker.logged("stopping")
            broker.send(signal.SIGTERM)
            assert broker.status() == 128 + signal.SIGTERM
            assert call.status() == 5
        gate.open()


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        result = run("up", "--listen", url, "--data", str(tmp_path))
    assert result.returncode == 2
    assert url in complaint(result)
    assert "in use" in complaint(result)


def test_the_second_of_two_listeners_in_use_leaves_no_socket_of_the_first(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        result = run(
            "up", "--listen", f"ipc://{tmp_path}/s", "--listen", url, "--data", str(tmp_path), "--log-level", "error"
        )
    assert result.returncode == 2
    assert "in use" in complaint(result)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--listen", "127.0.0.1:5246"], "tcp://127.0.0.1:5246"),
        (["--listen", "tcp://0.0.0.0:0"], "--insecure"),
        (["--grace", "soon"], "grace (flag --grace)"),
        (["--log-level", "loud"], "log_level (flag --log-level)"),
        (["--limits-max-mesage", "1KiB"], "did you mean --limits-max-message?"),
        (["--limits-max-message"], "--limits-max-message"),
        (["--config", "/nonexistent/polydomo.toml"], "/nonexistent/polydomo.toml"),
        (["extra"], "'extra'"),
    ],
)
def test_an_invalid_setting(tmp_path: Path, words: list[str], said: str) -> None:
    result = run("up", *words, cwd=tmp_path)
    assert result.returncode == 2
    assert said in complaint(result)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_key_in_the_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "polydomo.toml"
    file.write_text("[limits]\nmax_message = 'much'\n")
    result = run("up", "--config", str(file))
    assert result.returncode == 2
    assert "limits.max_message" in complaint(result)
    assert str(file) in complaint(result)


def test_a_directory_that_cannot_be_written_to(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    result = run("up", "--listen", "tcp://127.0.0.1:0", "--data", str(in_the_way / "data"))
    assert result.returncode == 2
    assert str(in_the_way / "data") in complaint(result)


def test_it_keeps_its_data_under_the_working_directory(tmp_path: Path) -> None:
    with Running("up", "--log-json", "--listen", "tcp://127.0.0.1:0", cwd=tmp_path) as broker:
        broker.logged("ready")
        assert (tmp_path / "polydomo-data").is_dir()


def test_several_listeners_and_the_variable_of_clients(tmp_path: Path) -> None:
    socket_url = f"ipc://{tmp_path}/s"
    words = ["up", "--log-json", "--data", str(tmp_path), "--listen", "tcp://127.0.0.1:0", "--listen", socket_url]
    with Running(*words, POLYDOMO_TO="tcp://127.0.0.1:1") as broker:
        broker.logged("ready")
        for url in (broker.logged("listening")["address"], socket_url):
            assert run("status", POLYDOMO_TO=url).returncode == 0
        broker.send(signal.SIGTERM)
        assert broker.status() == 0
        assert not (tmp_path / "s").exists()


def test_next_steps_are_printed_on_a_terminal(tmp_path: Path) -> None:
    master, terminal = os.openpty()
    words = [*POLYDOMO, "up", "--listen", "tcp://127.0.0.1:0", "--data", str(tmp_path)]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=terminal, env=environment())
    os.close(terminal)
    try:
        said = ""
        with os.fdopen(master, errors="replace") as screen:
            while "Ctrl-C" not in said:
                said += screen.readline()
            process.terminate()
            assert process.wait(120) == 0
        address = said.split("listening address=")[1].split()[0]
        assert f"polydomo call echo hello --to {address}" in said
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="the system does not show a process's limits")
def test_the_limit_of_open_files_is_raised(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        limits = Path(f"/proc/{broker.process.pid}/limits").read_text()
    soft, hard = next(line for line in limits.splitlines() if line.startswith("Max open files")).split()[3:5]
    assert soft == hard


def test_a_broker_carries_no_client_and_no_table_drawing() -> None:
    code = (
        "import sys, polydomo.cli.main, polydomo.cli.common.flags, polydomo.server.server\n"
        "print([m for m in sys.modules if m.split('.')[0] == 'rich' or m.startswith(('polydomo.client', 'polydomo.worker'))])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


@pytest.mark.parametrize("processes", [[], ["--processes", "2"]], ids=["one process", "two processes"])
def test_the_version_and_the_log_say_which_core_runs(processes: list[str], tmp_path: Path) -> None:
    from polydomo import __version__
    from polydomo.broker import broker

    form = "interpreted" if str(broker.__file__).endswith(".py") else "compiled"
    assert run("--version").stdout.decode().startswith(f"polydomo {__version__} ({form} core, Python 3.")
    with Broker(tmp_path / "data", *processes) as started:
        assert started.logged("ready")["core"] == form


def test_a_variable_of_the_build_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDOMO_COMPILED", "1")
    flags.load(None, {}, [])


def test_a_broker_that_records_does_not_load_pandas() -> None:
    pytest.importorskip("pandas")
    code = """
import sys
from polydomo.cli.broker.up import spare_pandas
spare_pandas()
import pyarrow
assert pyarrow.array([1, 2]).to_pylist() == [1, 2]
assert "pandas" not in sys.modules, "pyarrow has loaded it"
import pandas
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
