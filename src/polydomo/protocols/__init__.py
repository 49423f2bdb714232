"""Translates messages into calls of the broker and back: one module per protocol, for both sides of each.

``broker_api.py`` is the interface of the broker to a session (``BrokerApi``), ``session.py`` the interface of a session to the broker
(``Session``). ``ends.py`` has the interfaces of the other side of the wire: clients and workers.
"""
