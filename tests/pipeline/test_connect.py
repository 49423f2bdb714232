"""The same job over Spark Connect: a server from the pip package, on this machine."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.generate_journal import generate
from tests.pipeline.comparing import content
from tests.pipeline.test_cluster import daemon, pipeline

pytest.importorskip("pyspark")
pytest.importorskip("grpc_status", reason="pip install 'polydomo[test]' installs what Spark Connect needs")
from polydomo.pipeline.tables import TABLES


def free_port() -> int:
    """A free port: with port 0, the server does not report the port it chose."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def connect_server(scratch: Path) -> Iterator[str]:
    """A Spark Connect server; yields its URL."""
    port = free_port()
    server = (
        "org.apache.spark.deploy.SparkSubmit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--master", "local[2]", "--conf", "spark.connect.grpc.binding.address=127.0.0.1",
        "--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.driver.host=127.0.0.1",
        "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.session.timeZone=UTC", "--conf", f"spark.pyspark.python={sys.executable}",
        "spark-internal",
    )  # fmt: skip
    with daemon(*server, until="Spark Connect server started", scratch=scratch):
        yield f"sc://127.0.0.1:{port}"


@pytest.mark.timeout(900)
def test_a_connect_server_gives_the_same_tables(tmp_path: Path) -> None:
    facts = generate(tmp_path / "journal", 1_500, seed=6, breaches=1, seconds=600)
    journals = [str(tmp_path / "journal" / name) for name in facts["brokers"]]
    verdict = pipeline(journals, tmp_path / "here").splitlines()[-1]
    with connect_server(tmp_path) as url:
        there = pipeline(journals, tmp_path / "there", "--remote", url)
        again = pipeline(journals, tmp_path / "there", "--remote", url)
    assert there.splitlines()[-1] == again.splitlines()[-1] == verdict
    assert again.splitlines()[0] == "nothing new"
    apart, together = content(tmp_path / "there"), content(tmp_path / "here")
    for table in TABLES:
        assert apart[table] == together[table], table
    assert apart["requests"] and apart["services"]
