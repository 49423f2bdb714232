"""Tests of one group run in one process of pytest-xdist."""

import pytest


@pytest.mark.xdist_group("groups")
def test_the_scheduler_sees_the_group(request: pytest.FixtureRequest) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("not a process of pytest-xdist with --dist loadgroup")
    assert request.node.nodeid.endswith("@groups"), "pytest-xdist reads the group from the end of the node id"
