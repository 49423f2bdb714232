"""A node of the Core Catalog: it finds the broker by its beacon (`polydomo up --beacon`), registers over DBP, answers requests, publishes
and logs. `POLYDOMO_TO` names a broker without a beacon.

Prints:

    example.thermometer: temperature in Oslo
    -3 degrees
    example.weather.oslo -3
    INFO example.thermometer: asked by a client
"""

import logging
import os

import polydomo.logs
from polydomo import Call, Client, Worker

URL = os.environ.get("POLYDOMO_TO", "discover://")
log = logging.getLogger("example.thermometer")
log.setLevel(logging.INFO)
log.addHandler(polydomo.logs.Handler(URL))
node = Worker(URL, protocol="dbp", information={"function": "temperature in Oslo", "port": 4001})

with Client(URL) as client:

    @node.service("example.thermometer")
    def measure(call: Call) -> str:
        log.info("asked by a client")
        client.publish("example.weather.oslo", "-3")
        return "-3 degrees"

    with node:  # registered while it runs; `polydomo catalog` shows it
        (found,) = client.lookup(function="temperature*")
        print(f"{found['name']}: {found['function']}")
        print(client.call(found["name"]).text)
        with client.subscribe("example.weather.") as messages:
            topic, value = next(iter(messages))
            print(topic, value.text)
        while not (records := client.call("polydomo.logs", '{"service": "example.thermometer"}').json()):
            pass  # the record travels on a connection of its own, which may still be opened
        print(f"{records[0]['level'].upper()} {records[0]['service']}: {records[0]['message']}")
