"""The PostgreSQL server that tests/stores and some tests here use."""

from tests.stores.conftest import postgres

__all__ = ["postgres"]
