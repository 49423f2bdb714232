"""The messages of which there are few beside those that every request has. Who looks for these looks among few."""

from pyspark.sql import DataFrame

from polydomo.journal import schema

COMMON = (schema.ACCEPTED, schema.DISPATCHED, schema.PARTIAL, schema.FINAL, schema.GRANTED, schema.PUBLISHED)
RARE = f"event NOT IN ({', '.join(map(repr, COMMON))}) OR (event = '{schema.DISPATCHED}' AND attempt > 1)"
UNASKED = ("dialect", "hop", "size", "topic", "body", "body_cut")  # columns that nobody looks for among them


def rare(messages: DataFrame) -> DataFrame:
    return messages.where(RARE).drop(*UNASKED)
