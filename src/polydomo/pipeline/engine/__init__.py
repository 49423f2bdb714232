"""How the tables are computed: three stages of tasks, each in DuckDB's SQL on Arrow and Parquet.

1. ``hour``: the rows of one run in one hour. It writes ``requests``, ``hops``, ``logs`` and ``values``, and sends sums and histograms on.
2. ``run``: the audit of one run, from its last saved state, and the presence of its workers; ``bridges``: the
requests of one hour that went
   over bridges, which may have rows of several brokers and hours.
3. ``unit``: one hour of all brokers, from the sums: ``services``, ``workers``, ``topology``, ``capacity``; and the breaches of a run.

Tasks exchange messages (``messages.py``). Who runs them is not their concern: ``execute.py`` does it in this process or on Spark.
"""
