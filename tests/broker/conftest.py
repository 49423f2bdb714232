"""What several files of these tests share."""

import pytest

from tests.broker.net import Net


@pytest.fixture
def net() -> Net:
    return Net()
