"""Translates messages into calls of the broker and back: one package per protocol, for both sides of each.

``model.broker_api`` is the interface of the broker to a session (``BrokerApi``), ``model.session`` the interface of a session to the
broker (``Session``). ``ends.py`` has the interfaces of the other side of the wire: clients and workers.
"""
