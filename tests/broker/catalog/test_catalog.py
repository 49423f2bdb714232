"""The catalog: its entries, who may change them, and how they end after silence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.broker.catalog.catalog import Catalog
from polydomo.limits import DBP_LATE, MAX_CATALOG_BYTES, MAX_CATALOG_GONE, MAX_CATALOG_INFO, MAX_SERVICES
from polydomo.model.records import LATE, LEFT, LOST, READY
from polydomo.model.tuning import Tuning

HERE, THERE = "192.0.2.1", "192.0.2.2"


def catalog_with(name: str = "camera", beat: float = 0.0, tuning: Tuning | None = None) -> Catalog:
    catalog = Catalog(tuning if tuning is not None else Tuning())
    assert catalog.register(10.0, name, HERE, {"name": name, "port": 1}, beat) == ""
    return catalog


def test_a_registered_service_is_found_as_it_described_itself() -> None:
    catalog = catalog_with()
    assert catalog.lookup("camera") == {"name": "camera", "port": 1, "ip": HERE}
    assert catalog.active_entries() == {"camera": {"name": "camera", "port": 1, "ip": HERE}}
    assert catalog.lookup("zzz") is None


def test_the_same_address_replaces_a_registration() -> None:
    catalog = catalog_with(beat=5.0)
    assert catalog.register(11.0, "camera", HERE, {"name": "camera", "port": 2}, 0.0) == ""
    assert catalog.lookup("camera") == {"name": "camera", "port": 2, "ip": HERE}
    assert catalog.next_deadline() is None  # the second one agreed to no beats
    catalog.check_invariants()


def test_another_address_is_denied_while_the_first_is_active() -> None:
    catalog = catalog_with()
    assert "already registered" in catalog.register(11.0, "camera", THERE, {"name": "camera"}, 0.0)
    assert catalog.remove(12.0, "camera", HERE, "DISCONNECT")
    assert catalog.register(13.0, "camera", THERE, {"name": "camera"}, 0.0) == ""


def test_only_the_registered_address_may_update_beat_or_leave() -> None:
    catalog = catalog_with(beat=5.0)
    assert catalog.update(11.0, "camera", THERE, {"port": 3}) != ""
    assert not catalog.heartbeat(11.0, "camera", THERE)
    assert not catalog.remove(11.0, "camera", THERE, "DISCONNECT")
    assert catalog.lookup("camera") == {"name": "camera", "port": 1, "ip": HERE}
    assert catalog.heartbeat(11.0, "camera", HERE)


def test_an_update_changes_what_it_names_and_never_the_name() -> None:
    catalog = catalog_with()
    assert catalog.update(11.0, "camera", HERE, {"port": 2, "function": "images", "name": "other"}) == ""
    assert catalog.lookup("camera") == {"name": "camera", "port": 2, "function": "images", "ip": HERE}
    assert "not registered" in catalog.update(11.0, "zzz", HERE, {})
    assert "seconds" in catalog.update(11.0, "camera", HERE, {"heartbeat": "often"})


def test_an_update_may_agree_to_beat() -> None:
    catalog = catalog_with()
    assert catalog.update(11.0, "camera", HERE, {"heartbeat": 4}) == ""
    assert catalog.next_deadline() == pytest.approx(11.0 + 4 * DBP_LATE)
    catalog.check_invariants()


def test_a_silent_entry_becomes_late_then_lost_and_is_reported() -> None:
    catalog = catalog_with(beat=2.0)
    entry = catalog.entries["camera"]
    assert catalog.next_deadline() == pytest.approx(13.0)
    catalog.run_timers(12.9)
    assert entry.state == READY
    catalog.run_timers(13.0)
    assert (entry.state, entry.since, entry.cause) == (LATE, 13.0, "no heartbeat for 3.0 s")
    assert catalog.changed == [entry]
    assert catalog.lookup("camera") is not None  # late is still active
    catalog.run_timers(15.9)
    assert entry.state == LATE and catalog.changed == []
    catalog.run_timers(16.0)
    assert (entry.state, entry.cause) == (LOST, "no heartbeat for 6.0 s")
    assert catalog.lookup("camera") is None and catalog.active_entries() == {}
    assert not catalog.heartbeat(17.0, "camera", HERE)  # it must register again
    assert catalog.next_deadline() is None
    catalog.check_invariants()


def test_a_heartbeat_makes_a_late_service_ready() -> None:
    catalog = catalog_with(beat=2.0)
    catalog.run_timers(13.0)
    assert catalog.heartbeat(13.5, "camera", HERE)
    entry = catalog.entries["camera"]
    assert (entry.state, entry.cause) == (READY, "heartbeats resumed")
    catalog.run_timers(16.0)
    assert entry.state == READY
    catalog.run_timers(16.5)
    assert entry.state == LATE


def test_without_a_heartbeat_timing_silence_means_nothing() -> None:
    catalog = catalog_with(beat=0.0)
    assert catalog.next_deadline() is None
    catalog.run_timers(1e9)
    assert catalog.lookup("camera") is not None


def test_a_setting_forbids_registrations_that_do_not_beat() -> None:
    catalog = Catalog(Tuning(dbp_silent=False))
    assert "heartbeat interval" in catalog.register(1.0, "camera", HERE, {"name": "camera"}, 0.0)
    assert catalog.register(1.0, "camera", HERE, {"name": "camera", "heartbeat": 5}, 5.0) == ""
    assert "heartbeat interval" in catalog.update(1.0, "camera", HERE, {"heartbeat": None})


def test_an_allow_list_denies_every_other_name() -> None:
    catalog = Catalog(Tuning(dbp_names=["camera"]))
    assert catalog.register(1.0, "camera", HERE, {"name": "camera"}, 0.0) == ""
    assert "may not register" in catalog.register(1.0, "radar", HERE, {"name": "radar"}, 0.0)


@pytest.mark.parametrize("name", ["", "  ", "a,b", " a", "Error", "x" * 256, "a\x00b", "\ud800"])
def test_names_that_are_ambiguous_in_an_info_request_are_denied(name: str) -> None:
    assert Catalog(Tuning()).register(1.0, name, HERE, {"name": name}, 0.0) != ""


def test_the_size_of_one_entry_is_limited() -> None:
    catalog = catalog_with()
    big: dict[str, object] = {"name": "camera", "function": "x" * MAX_CATALOG_INFO}
    assert "bytes" in catalog.register(11.0, "camera", HERE, big, 0.0)
    assert "bytes" in catalog.update(11.0, "camera", HERE, big)
    assert catalog.lookup("camera") == {"name": "camera", "port": 1, "ip": HERE}


def test_the_size_of_all_entries_is_limited() -> None:
    catalog = Catalog(Tuning())
    size = MAX_CATALOG_INFO - 200
    count = 0
    while catalog.register(1.0, f"s{count}", HERE, {"name": f"s{count}", "x": "y" * size}, 0.0) == "":
        count += 1
    assert MAX_CATALOG_BYTES // MAX_CATALOG_INFO <= count <= MAX_CATALOG_BYTES // size
    assert catalog.register(2.0, "s0", HERE, {"name": "s0", "x": "z" * size}, 0.0) == ""  # replacing needs no more room
    catalog.check_invariants()


def test_the_number_of_services_is_bounded() -> None:
    catalog = Catalog(Tuning())
    for i in range(MAX_SERVICES):
        assert catalog.register(1.0, f"s{i}", HERE, {"name": f"s{i}"}, 0.0) == ""
    assert "already" in catalog.register(1.0, "one more", HERE, {"name": "one more"}, 0.0)
    assert catalog.register(1.0, "s5", HERE, {"name": "s5"}, 0.0) == ""


def test_removed_entries_keep_their_reason_up_to_a_limit() -> None:
    catalog = Catalog(Tuning())
    for i in range(MAX_CATALOG_GONE + 10):
        catalog.register(1.0, f"s{i}", HERE, {"name": f"s{i}"}, 0.0)
        catalog.remove(2.0, f"s{i}", HERE, "DISCONNECT")
    assert len(catalog.entries) == MAX_CATALOG_GONE
    assert "s0" not in catalog.entries
    entry = catalog.entries[f"s{MAX_CATALOG_GONE}"]
    assert (entry.state, entry.cause, entry.since) == (LEFT, "DISCONNECT", 2.0)
    catalog.check_invariants()


def test_registering_over_and_over_leaves_nothing_behind() -> None:
    catalog = Catalog(Tuning())
    for i in range(10_000):
        catalog.register(float(i), "camera", HERE, {"name": "camera"}, 3600.0)
    assert len(catalog._watch) < 100


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enlist"), NAMES, st.sampled_from([HERE, THERE]), st.sampled_from([0.0, 1.0, 2.5])),
        st.tuples(st.just("amend"), NAMES, st.sampled_from([HERE, THERE]), st.sampled_from([0.0, 0.5, 3.0])),
        st.tuples(st.just("beaten"), NAMES, st.sampled_from([HERE, THERE]), st.just(0.0)),
        st.tuples(st.just("delist"), NAMES, st.sampled_from([HERE, THERE]), st.just(0.0)),
        st.tuples(st.just("wait"), NAMES, st.just(HERE), st.sampled_from([0.1, 1.0, 5.0])),
    ),
    max_size=40,
)


@given(STEPS)
def test_whatever_happens_the_catalog_agrees_with_itself(steps: list[tuple[str, str, str, float]]) -> None:
    catalog = Catalog(Tuning())
    now = 0.0
    for what, name, address, number in steps:
        if what == "enlist":
            catalog.register(now, name, address, {"name": name, "heartbeat": number}, number)
        elif what == "amend":
            catalog.update(now, name, address, {"heartbeat": number or None})
        elif what == "beaten":
            catalog.heartbeat(now, name, address)
        elif what == "delist":
            catalog.remove(now, name, address, "DISCONNECT")
        else:
            now += number
            catalog.run_timers(now)
            deadline = catalog.next_deadline()
            assert deadline is None or deadline > now
        catalog.check_invariants()
        for entry in catalog.entries.values():  # nobody outlives his silence, once it has been looked at
            if what == "wait" and entry.state in (READY, LATE) and entry.beat:
                assert now < entry.seen + entry.beat * 3
