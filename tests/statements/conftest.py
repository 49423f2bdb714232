from collections.abc import Iterator

import pytest

from polydomo import testing
from tests.statements.raw import PATIENT


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.broker(settings=PATIENT) as broker:
        yield broker
