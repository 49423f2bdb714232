"""Multipart messages to broker verbs and back: one module per protocol, both ends of each.

``verbs.py`` is the language in between: what a codec may ask of the broker (``BrokerApi``) and what the broker asks of a codec
(``Session``). ``ends.py`` is the same for the other side of the wire: clients and workers.
"""
