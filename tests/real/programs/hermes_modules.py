"""Lets Hermes be imported with a pyzmq of today: it names a type variable of pyzmq's own that has another name now, and never uses it."""

import zmq.sugar.context

vars(zmq.sugar.context).setdefault("T", None)
