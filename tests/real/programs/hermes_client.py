"""Hermes's client as it is: finds the broker by its beacon, asks for all services, and talks to one of them."""

import json
import sys

import hermes_modules  # noqa: F401
from Hermes.Client import Client

client = Client()
print(json.dumps(client.get_services()))
print(json.dumps(client.get_services(name=sys.argv[1])))
print(json.dumps(client.get_services(name="nobody")))
print(json.dumps([part.decode() for part in client.request_from_service(name=sys.argv[1])]))
