"""Each protocol page says what of flow control its protocol can carry, and it is what its client and worker do."""

import re

import pytest

from polydomo.protocols import registry
from polydomo.protocols.ends import ClientEnd, WorkerEnd
from tests.protocol_pages.dialogues import DIALOGUES
from tests.protocol_pages.test_pages import text_of

PAGES = {"mdp": ("mdp1", "mdp2"), "memo01": ("memo",)}


def says(name: str, feature: str) -> bool:
    section = text_of(name).partition("\n## Flow control\n")[2].partition("\n## ")[0]
    row = re.search(rf"^\| {re.escape(feature)} \| (yes|no)\b", section, re.MULTILINE)
    assert row, f"{name}.md does not say whether {feature!r} works"
    return row[1] == "yes"


@pytest.mark.parametrize("name", DIALOGUES)
def test_every_page_says_what_its_protocol_can_carry(name: str) -> None:
    protocols = PAGES.get(name, (name,))
    workers = [registry.find_worker(protocol).worker() for protocol in protocols]
    reports = {type(worker).progress is not WorkerEnd.progress for worker in workers}
    assert reports == {says(name, "[progress](../libraries.md#progress) from a worker")}
    assert says(name, "[batches](../libraries.md#batches)") == (name != "dbp")
    if name == "dbp":  # it has no clients of services
        assert not says(name, "`group` and `near` of a request") and not says(name, "progress to a client")
        return
    clients: list[ClientEnd] = [registry.find(protocol).client() for protocol in protocols]
    assert {client.carries_keys for client in clients} == {says(name, "`group` and `near` of a request")}
    assert says(name, "progress to a client") == (name == "mdx")
