"""Turns are fair by source, then by connection, and a round stays short for any number of waiting connections."""

from polydomo.wire.link import Hub, Link, LinkHandler, Turns


def link(source: str) -> Link:
    made = Link(Hub(), LinkHandler(), f"tcp://{source}:1")
    made.source = source
    return made


def test_sources_take_turns_and_so_do_their_connections() -> None:
    turns = Turns(work=600, share=100, least=10)
    crowd = [link("crowd") for _ in range(4)]
    single = link("single")
    for each in [*crowd, single]:
        turns.wait(each)
        turns.wait(each)  # once is enough
    turns.check_invariants()
    assert turns.waiting == 5
    chosen = turns.next_turn()
    assert chosen[:3] == [crowd[0], single, crowd[1]]
    assert turns.waiting + len(chosen) == 5
    turns.check_invariants()


def test_with_many_waiting_connections_each_gets_a_smaller_share() -> None:
    turns = Turns(work=1000, share=500, least=10)
    links = [link("one") for _ in range(250)]
    for each in links:
        turns.wait(each)
    rounds = 0
    served: list[Link] = []
    while turns.waiting:
        chosen = turns.next_turn()
        assert sum(each.work_left for each in chosen) <= 500
        served += chosen
        rounds += 1
    assert served == links and rounds <= 6


def test_a_connection_that_closed_is_forgotten() -> None:
    turns = Turns()
    gone, stays = link("a"), link("b")
    turns.wait(gone)
    turns.wait(stays)
    turns.forget(gone)
    turns.forget(gone)
    turns.check_invariants()
    assert turns.next_turn() == [stays] and not turns.waiting
    assert turns.next_turn() == []


def test_a_link_that_waits_keeps_waiting_under_its_new_source() -> None:
    hub = Hub(Turns(work=600, share=100, least=10))
    assert hub.turns is not None
    crowd = [Link(hub, LinkHandler(), "tcp://10.0.0.1:1") for _ in range(3)]
    for each in crowd:
        each.source = "10.0.0.1"
        each.use_up()
    crowd[2].set_source("principal alice")
    hub.turns.check_invariants()
    assert hub.turns.waiting == 3
    assert hub.turns.next_turn()[:2] == [crowd[0], crowd[2]]
    crowd[1].set_source("principal bob")  # it does not wait, and does not begin to
    hub.turns.check_invariants()
