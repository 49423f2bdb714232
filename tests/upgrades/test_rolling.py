"""Upgrades without downtime, with the released version: 0.2 (commit 2369a3e) beside this one.

The old version runs from the history of the repository: without it, as in a source distribution, these tests are skipped.
"""

import io
import signal
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

import polydomo
from tests.cli.shell import PATIENCE, POLYDOMO, Broker, Running, environment
from tests.stores.conftest import postgres

__all__ = ["postgres"]

ROOT = Path(__file__).parents[2]
RELEASED = "2369a3e"
OLD = "0.2.0"


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path for Python that has the released version."""
    archive = subprocess.run(["git", "archive", RELEASED, "src"], cwd=ROOT, capture_output=True)
    if archive.returncode != 0:
        pytest.skip("the history of the repository, which has the released version, is not here")
    tree = tmp_path_factory.mktemp("released")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(tree, filter="data")
    return str(tree / "src")


class OldBroker(Running):
    """A broker of the released version, ready."""

    def __init__(self, old: str, data: Path, *words: str) -> None:
        up = ("up", "--listen", "tcp://127.0.0.1:0", "--data", str(data), "--log-json", "--journal=off", *words)
        super().__init__(*up, PYTHONPATH=old)
        try:
            self.logged("ready")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.url: str = self.logged("listening")["address"]


def test_the_old_program_is_the_released_one(old: str) -> None:
    shown = subprocess.run(
        [*POLYDOMO, "--version"], env=environment(PYTHONPATH=old), capture_output=True, timeout=PATIENCE
    )
    assert OLD in shown.stdout.decode(), shown


@pytest.mark.parametrize("new_opens", [True, False], ids=["new-opens", "old-opens"])
def test_bridged_brokers_of_both_versions(old: str, tmp_path: Path, new_opens: bool) -> None:
    """Clients and workers move one by one: each broker serves the requests that it has no worker for through the other."""
    first: Any
    if new_opens:
        first = OldBroker(old, tmp_path / "first")
        second: Any = Broker(tmp_path / "second", "--bridge", first.url)
    else:
        first = Broker(tmp_path / "first")
        second = OldBroker(old, tmp_path / "second", "--bridge", first.url)
    with first, second:
        workers = [
            Running("work", name, "--to", at.url, "--log-json", "--", "tr", "a-z", "A-Z")
            for name, at in (("one", first), ("two", second))
        ]
        with workers[0], workers[1]:
            with polydomo.Client(first.url) as near, polydomo.Client(second.url) as far:
                for client in (near, far):
                    for service in ("one", "two"):
                        assert client.call(service, "from here to there", timeout=PATIENCE).text == "FROM HERE TO THERE"


@pytest.mark.xdist_group("postgres")
def test_two_brokers_with_one_database(old: str, postgres: Any, tmp_path: Path) -> None:
    """The new broker waits while the old one leads; once that stops, it upgrades the tables, leads, and continues its jobs."""
    store = ("--store", postgres.database("rolling"))
    leads = "this broker is the leader for jobs"
    with OldBroker(old, tmp_path / "old", *store, "--durable-lease", "600s") as before:
        before.logged(leads)
        with polydomo.Client(before.url) as client:
            done, open_one = client.submit_job("upper", "done before"), client.submit_job("later", "open")
            with Running("work", "upper", "--to", before.url, "--log-json", "--", "tr", "a-z", "A-Z"):
                assert client.result(done, wait=PATIENCE).text == "DONE BEFORE"
        with Broker(tmp_path / "new", *store) as after:

            def waits() -> list[dict[str, Any]]:
                return [
                    entry
                    for entry in after.entries
                    if entry["logger"] == "polydomo.store" and entry["level"] == "error"
                ]

            after.wait_until(lambda: bool(waits()), "line about the old leader")
            assert before.url in waits()[0]["message"]
            assert not any(entry["message"] == leads for entry in after.entries)
            before.send(signal.SIGTERM)
            assert before.status() == 0
            after.logged(leads)
            with after.worker("later", "--echo"), polydomo.Client(after.url) as client:
                assert client.result(done).text == "DONE BEFORE"
                assert client.result(open_one, wait=PATIENCE).text == "open"
                assert client.result(client.submit_job("later", "new"), wait=PATIENCE).text == "new"
