"""The registry of built-in services."""

from polydomo.broker.broker import Broker
from polydomo.broker.builtin.service import EACH, FIRST, OFFERED
from tests.broker.builtin import table
from tests.broker.rig import World
from tests.entropy import Counting


def test_the_page_has_a_row_for_each_service() -> None:
    documented = table.parts(table.PAGE.read_text(encoding="utf-8"))[1]
    assert documented == "".join(table.rows()), "renew it: python -m tests.broker.builtin.table"


def test_every_entry_can_be_answered_and_says_by_which_process() -> None:
    for service in Broker(0.0, Counting()).builtin.by_name.values():
        for one in (service, service.variant):
            if one is None:
                continue
            assert one.name == service.name and one.says
            assert one.answer is None or one.rows is None, f"{one.name!r}: two answers"
            assert one.process in (EACH, FIRST, OFFERED)
            assert one.merge is None or one.process == EACH, f"{one.name!r}: merged, and answered by one process"


def test_rows_of_lists_are_built_when_they_are_read() -> None:
    world = World()
    world.worker(b"first"), world.worker(b"last")
    rows = world.broker.builtin.by_name[b"polydomo.services"].rows
    assert rows is not None
    length, found = rows()
    assert (length, next(found)["name"]) == (2, "first")
    client = world.client()
    client.ask(service=b"last"), client.ask(service=b"last")
    (last,) = found
    assert (last["name"], last["queued"]) == ("last", 1), "as it is now"
