"""pyzmq-mdp 0.2, MDP/0.1 of 2012: its worker and client with our broker. The client gets header and service with each reply."""

import pytest

import polydomo
from polydomo import testing
from polydomo.server.server import BrokerServer
from polydomo.server.settings.settings import Settings
from tests.real.peers import Program, needs, run

pytestmark = [needs("mdp"), pytest.mark.real_time]


def test_a_call_and_mmi() -> None:
    with testing.broker() as broker, Program("mdp_worker.py", broker.url, "reverse"):
        broker.wait_for("reverse")
        assert run("mdp_ask.py", broker.url, "reverse", "60000", "a", "b", "c") == [
            '["MDPC01", "reverse", "c", "b", "a"]'
        ]
        assert run("mdp_ask.py", broker.url, "mmi.service", "60000", "reverse") == ['["MDPC01", "mmi.service", "200"]']
        assert run("mdp_ask.py", broker.url, "mmi.service", "60000", "nobody") == ['["MDPC01", "mmi.service", "404"]']


def test_an_idle_worker_stays_and_a_dead_one_is_removed() -> None:
    with testing.broker(settings=Settings(beat=0.1, beats_missed=50)) as broker:
        with Program("mdp_worker.py", broker.url, "reverse", "200"):
            broker.wait_for("reverse")
            seen: set[float] = set()

            def beaten(server: BrokerServer) -> bool:
                seen.update(worker.last_heard for worker in server.broker.workers if worker.number == 1)
                return len(seen) > 10

            broker.wait_until(beaten)
            with polydomo.Client(broker.url) as client:
                assert [bytes(frame) for frame in client.call("reverse", b"1", b"2")] == [b"2", b"1"]
        broker.wait_for("reverse", 0)


def test_a_timeout() -> None:
    with testing.broker() as broker:
        assert run("mdp_ask.py", broker.url, "nobody", "300", "x") == ["null"]
