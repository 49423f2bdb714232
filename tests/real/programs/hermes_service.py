"""Hermes's service as it is: finds the broker by its beacon, registers, and answers ping."""

import logging
import sys

import hermes_modules  # noqa: F401
from Hermes.Service import Service

Service(name=sys.argv[1], log_level=logging.INFO).start()
