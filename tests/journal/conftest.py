"""The Spark session that tests/pipeline, tests/spark and one test here share."""

from tests.pipeline.conftest import spark

__all__ = ["spark"]
