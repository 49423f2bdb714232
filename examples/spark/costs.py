"""What the calls of each service cost: the journal's tables joined with a price list of one's own. Needs ``pip install 'polydomo[spark]'``.

It starts a broker with a journal, makes some calls, and takes the journal into tables as `polydomo pipeline run` does.

Prints:

    resize: 3 calls, 0.75 EUR
    upper: 2 calls, 0.02 EUR
"""

import socket
import subprocess
import sys
import tempfile
import time

from polydomo import Client, NotConnected, Worker
from polydomo.pipeline import session
from polydomo.pipeline.catalog import views

PRICES = [("resize", 0.25), ("upper", 0.01)]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def make_calls(url: str) -> None:
    worker = Worker(url)
    for name, _ in PRICES:
        worker.add(name, lambda call: call.body)
    with Client(url) as client:
        while True:
            try:
                client.call("polydomo.status")
                break
            except NotConnected:
                time.sleep(0.1)  # the broker is just starting
        with worker:
            for service in ("resize", "upper", "resize", "upper", "resize"):
                client.call(service, "a request")


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        url = f"tcp://127.0.0.1:{free_port()}"
        polydomo = [sys.executable, "-m", "polydomo"]
        with subprocess.Popen([*polydomo, "up", "--listen", url, "--data", place, "--log-level", "error"]) as broker:
            make_calls(url)
            broker.terminate()
        tables = ["--journal", f"{place}/journal", "--tables", f"{place}/tables", "--quiet"]
        subprocess.run([*polydomo, "pipeline", "run", *tables], stdout=subprocess.DEVNULL, check=True)
        spark = session.build(master="local[1]")
        try:
            views(spark, f"{place}/tables")
            spark.createDataFrame(PRICES, "service STRING, price DOUBLE").createOrReplaceTempView("prices")
            rows = spark.sql(
                "SELECT service, count(*) AS calls, sum(price) AS euros FROM requests JOIN prices USING (service) "
                "GROUP BY service ORDER BY service"
            )
            for row in rows.collect():
                print(f"{row.service}: {row.calls} calls, {row.euros:.2f} EUR")
        finally:
            session.close(spark)


if __name__ == "__main__":
    main()
