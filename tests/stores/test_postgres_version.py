"""The version of the tables in PostgreSQL, which `polydomo doctor` asks for, is read without creating or upgrading any."""

import pytest

from polydomo.stores.backend import SCHEMA
from polydomo.stores.postgres import PostgresBackend
from tests.postgres import Postgres


@pytest.mark.xdist_group("postgres")
def test_the_version_is_read_and_nothing_is_made(postgres: Postgres) -> None:
    backend = PostgresBackend(postgres.database("version"))
    assert backend.version() == backend.version() == 0  # the first look made no tables
    backend.open()
    backend.close()
    assert backend.version() == SCHEMA
