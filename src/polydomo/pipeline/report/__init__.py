"""One self-contained page that shows what a journal holds: ``page.render`` from ``data.Report``. No Spark, no network, no scripts."""
