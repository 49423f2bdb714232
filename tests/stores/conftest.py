"""Fixtures of the stores: a PostgreSQL server, and a backend of each kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import Postgres
from tests.stores.cases import Case


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(
    params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.xdist_group("postgres"))],
)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    made = Case(request.param, tmp_path, server)
    yield made
    made.backend.close()
