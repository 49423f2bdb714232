"""Payloads as typed tables (filled in below)."""

from polydomo.pipeline.engine.duck import Duck
from polydomo.pipeline.engine.plan import HourItem, Payload


def build(duck: Duck, item: HourItem, payload: Payload, problems: list[str]) -> dict[str, int]:
    raise NotImplementedError
