"""SQL as a service: from Python, from the shell and with curl. Needs ``pip install 'polydomo[spark]'`` and a broker.

In production `polydomo spark serve --table cities=/data/cities` offers the service. Here a worker of this program does.

Prints:

    Python: Bern 134591, Graz 291072
    shell:
    NAME  PEOPLE
    Bern  134591
    Graz  291072
    curl:
    {"name": "Graz", "people": 291072}
"""

import os
import subprocess
import sys
import time

import pyarrow as pa

from polydomo import Client, Worker
from polydomo.pipeline import session
from polydomo.spark.sql_service import SqlService

BROKER = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")
SQL = "SELECT * FROM cities ORDER BY name"


def main() -> None:
    spark = session.build(master="local[1]", conf={"spark.scheduler.mode": "FAIR"})
    try:
        spark.createDataFrame(
            [("Graz", 291072), ("Bern", 134591)], "name STRING, people BIGINT"
        ).createOrReplaceTempView("cities")
        service = SqlService(spark)
        worker = Worker(BROKER, concurrency=4)
        worker.add("spark.sql", service.__call__, schema=service.schema)
        with worker, Client(BROKER, timeout=120.0) as client:
            parts = [part for part in client.stream("spark.sql", SQL) if not part.final]
            rows = [row for part in parts for row in pa.ipc.open_stream(part.body).read_all().to_pylist()]
            print("Python:", ", ".join(f"{row['name']} {row['people']}" for row in rows))
            while client.call("polydomo.schema", "spark.sql").json() is None:
                time.sleep(0.1)  # the schema that allows GET reaches the broker right after the start
            call = [sys.executable, "-m", "polydomo", "call", "spark.sql", SQL, "--to", BROKER, "--timeout", "120s"]
            print("shell:", subprocess.run(call, capture_output=True, text=True, check=True).stdout, sep="\n", end="")
            url = BROKER.replace("tcp://", "http://") + "/v1/call/spark.sql"
            query = [
                "--data-urlencode",
                "q=SELECT * FROM cities WHERE people > :least",
                "--data-urlencode",
                "least=200000",
            ]
            curl = subprocess.run(["curl", "-s", "-G", url, *query], capture_output=True, text=True, check=True)
            print("curl:", curl.stdout, sep="\n", end="")
    finally:
        session.close(spark)


if __name__ == "__main__":
    main()
