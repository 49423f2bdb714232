"""Computes the tables in three stages of tasks, each with DuckDB's SQL on Arrow and Parquet.

1. ``hour``: the rows of one run in one hour. Writes ``requests``, ``hops``, ``logs``, ``values``, ``jobs`` and ``job_events``, and sends
   sums and histograms to stage 3.
2. ``run``: audits one run from its last saved state, and computes when its workers were present. ``bridges``: joins the parts of the
   bridged requests of one hour; several brokers and hours may have them. ``once``: checks events that must happen only once.
   ``payloads``: writes one table of payloads.
3. ``unit``: adds up one hour of all brokers: ``services``, ``workers``, ``topology``, ``capacity``.

Tasks exchange messages (``messages.py``). ``execute.py`` runs them in this process or on Spark.
"""
