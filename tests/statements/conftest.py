from collections.abc import Iterator

import pytest

from polydomo import testing


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.broker() as broker:
        yield broker
