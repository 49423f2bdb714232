"""The window of a worker: how many requests it holds at a time, and how many of them it runs at once.

MDX, eMQP and DCP workers that announced the extension send it (``CREDIT``); docs/protocols/extensions.md has the messages.
"""

from typing import Final

from polydomo.model.broker_api import BrokerApi
from polydomo.model.records import Worker

DIGITS: Final = 9  # of a number in CREDIT


def set_window(broker: BrokerApi, worker: Worker, window: bytes, runs: bytes) -> bool:
    """The worker has sent CREDIT with these two numbers, as text. Returns False if they are not numbers."""
    if not window.isdigit() or not runs.isdigit() or len(window) > DIGITS or len(runs) > DIGITS:
        return False
    broker.set_credit(worker, min(int(window), broker.tuning.mdx_max_credit), int(runs))
    return True
