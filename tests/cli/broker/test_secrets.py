"""Keys, tokens and passwords of a real broker appear in no log, setting, process title, error, journal or file of its data."""

import http.client
import re
from pathlib import Path

import pytest

from polydomo import Client
from polydomo.client.security import Security
from polydomo.errors import AccessDenied
from polydomo.journal.reading.reader import Reader
from tests.cli.shell import PATIENCE, Running, run
from tests.server.secured import NAMES, TOKEN, Place

PASSWORD = "hunter2-of-the-database"
WRONG = "a-token-that-nobody-has"


def test_secrets_appear_nowhere(tmp_path: Path) -> None:
    place = Place(tmp_path)
    listen = ("--listen", "tcp://127.0.0.1:0", "--data", "data", "--store", "off")
    words = ("--access", "access.toml", "--log-json", "--log-level", "debug", "--journal", "messages")
    said: list[str] = []
    with Running("up", *listen, *words, cwd=tmp_path) as broker:
        url = str(broker.logged("listening")["address"])
        broker.logged("ready")
        said.append(Path(f"/proc/{broker.process.pid}/cmdline").read_text())
        for options in (
            place.keys("alice"),
            {"security": Security(user="ci", token=TOKEN)},
        ):
            with Client(url, timeout=PATIENCE, **options) as client:
                assert client.call("polydomo.status").json()
        for options in (
            place.keys("mallory"),
            {"security": Security(user="ci", token=WRONG)},
        ):
            with Client(url, timeout=PATIENCE, **options) as client, pytest.raises(AccessDenied) as denied:
                client.call("polydomo.status")
            said.append(repr(denied.value))
        for token, status in ((TOKEN, 200), (WRONG, 401)):
            connection = http.client.HTTPConnection(url.removeprefix("tcp://"), timeout=PATIENCE)
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            assert response.status == status
            said.append(response.read().decode())
            connection.close()
    said += [*broker.said, *map(str, broker.entries)]
    store = f"postgresql://bob:{PASSWORD}@127.0.0.1:1/jobs?password={PASSWORD}"
    config = run("config", cwd=tmp_path, POLYDOMO_STORE=store)
    assert b"postgresql://bob@127.0.0.1:1/jobs" in config.stdout
    said.append(config.stdout.decode())
    reader = Reader([tmp_path / "data" / "journal"])
    rows = [row for kind in ("messages", "requests") for row in reader.rows(kind)]
    assert any(row["event"] == "refused" or row["principal"] == "alice" for row in rows)
    said += map(str, rows)
    said += [path.read_bytes().decode("latin-1") for path in (tmp_path / "data").rglob("*") if path.is_file()]
    secrets = [TOKEN, WRONG, PASSWORD]
    for name in NAMES:
        found = re.search(r'secret-key = "(.*)"', (tmp_path / f"{name}.key_secret").read_text())
        assert found is not None
        secrets.append(found[1])
    for text in said:
        assert not [secret for secret in secrets if secret in text], text
