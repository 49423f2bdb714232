"""``discover`` and ``--to discover://`` with real processes, on loopback alone."""

import json
from pathlib import Path

from tests.cli.shell import Broker, complaint, run
from tests.server.nearby import LOOPBACK, free_port


def test_brokers_are_listed_and_found(tmp_path: Path) -> None:
    port = free_port()
    with (
        Broker(tmp_path / "one", "--beacon", f"{LOOPBACK}:{port}", limits={"BEACON_INTERVAL": 0.1}) as one,
        Broker(tmp_path / "two", f"--beacon={LOOPBACK}:{port}", limits={"BEACON_INTERVAL": 0.1}) as two,
    ):
        brokers = {one.url, two.url}
        found = {row["address"]: row["beacons"] for row in json.loads(listed(port, brokers, "--json"))}
        assert found.keys() == brokers
        assert all(found.values())
        lines = listed(port, brokers).splitlines()
        assert lines[0].split() == ["BROKER", "BEACONS"]
        assert {line.split()[0] for line in lines[1:]} == brokers
        result = run("status", "--to", f"discover://{LOOPBACK}:{port}", "--json")
        assert json.loads(result.stdout)["address"] in found


def listed(port: int, brokers: set[str], *words: str) -> str:
    """What ``discover`` prints. It listens again while a broker is missing: a machine that pauses sends no beacons."""
    for seconds in (1, 2, 5, 20):
        result = run("discover", "--port", str(port), "--seconds", str(seconds), *words)
        if all(broker in result.stdout.decode() for broker in brokers):
            break
    assert result.returncode == 0, result.stderr
    return result.stdout.decode()


def test_a_broker_on_loopback_sends_its_beacon_on_loopback(tmp_path: Path) -> None:
    with Broker(tmp_path, "--beacon", "--log-level", "info") as broker:
        entry = broker.logged("beacon")
        assert (entry["to"], entry["says"]) == ("127.255.255.255:5245", f"SHALOM {broker.url.rpartition(':')[2]}")


def test_no_answer_is_one_line_and_an_exit_status() -> None:
    port = str(free_port())
    result = run("discover", "--port", port, "--seconds", "0.1")
    assert result.returncode == 5
    assert complaint(result) == (
        f"no beacon arrived on UDP port {port} within 0.1 s; start a broker with `polydomo up --beacon`"
    )
    result = run("call", "echo", "x", "--to", f"discover://{LOOPBACK}:{port}", "--timeout", "0.1")
    assert result.returncode == 5
    assert complaint(result).startswith("no broker was found in time; start one")


def test_an_invalid_address_is_reported() -> None:
    result = run("up", "--beacon", "everywhere")
    assert result.returncode == 2
    assert "dbp.beacon (flag --beacon): must be an IPv4 address and a port" in complaint(result)
    result = run("up", "--listen", "discover://")
    assert result.returncode == 2
    assert "discover:// is only for clients and workers" in complaint(result)
