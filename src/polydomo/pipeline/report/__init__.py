"""The report: one self-contained HTML page. ``page.render`` renders a ``data.Report``, without Spark, network or scripts."""
