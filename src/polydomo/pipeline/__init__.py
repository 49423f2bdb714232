"""From the journal to tables, an audit and a report, on Spark. Nothing else in the package imports pyspark."""
