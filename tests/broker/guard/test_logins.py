"""One-time codes and sessions of browsers: a code works once, both expire, and their number is limited."""

from contextlib import ExitStack

import pytest

from polydomo.broker.broker import Broker
from polydomo.broker.guard.logins import Logins
from polydomo.limits import LOGIN_CODE_TIME, LOGIN_SESSION_TIME, MAX_LOGINS
from sim.replacing import swap
from tests.entropy import Counting
from tests.forms import replaces_core


def made() -> Broker:
    return Broker(100.0, Counting())


def test_a_code_becomes_one_session() -> None:
    broker = made()
    code = broker.logins.issue("alice")
    cookie = broker.logins.redeem(code)
    assert broker.logins.principal(cookie) == "alice"
    assert broker.logins.redeem(code) == ""
    assert broker.logins.principal(code) == ""


def test_codes_and_sessions_expire() -> None:
    broker = made()
    late = broker.logins.issue("alice")
    cookie = broker.logins.redeem(broker.logins.issue("alice"))
    broker.now += LOGIN_CODE_TIME
    assert broker.logins.redeem(late) == ""
    broker.now += LOGIN_SESSION_TIME
    assert broker.logins.principal(cookie) == ""


def test_a_session_can_be_ended() -> None:
    broker = made()
    cookie = broker.logins.redeem(broker.logins.issue("alice"))
    broker.logins.end(cookie)
    assert broker.logins.principal(cookie) == ""


def test_the_oldest_give_way() -> None:
    broker = made()
    codes = [broker.logins.issue("alice") for _ in range(MAX_LOGINS + 1)]
    assert broker.logins.redeem(codes[0]) == ""
    assert broker.logins.redeem(codes[-1]) != ""


def check_replaced_credential() -> None:
    broker = made()
    code, kept = broker.logins.issue("alice"), broker.logins.redeem(broker.logins.issue("bob"))
    cookie = broker.logins.redeem(broker.logins.issue("alice"))
    broker.logins.forget("alice")
    assert broker.logins.principal(cookie) == "" and broker.logins.redeem(code) == ""
    assert broker.logins.principal(kept) == "bob"


def test_a_replaced_credential_ends_the_logins_of_its_principal() -> None:
    check_replaced_credential()


@replaces_core
def test_the_mutant_that_keeps_logins_is_found() -> None:
    with ExitStack() as stack:
        swap(stack, Logins, "forget", lambda forget: lambda self, principal: None)
        with pytest.raises(AssertionError):
            check_replaced_credential()
