"""SQL queries over finished tables, with DuckDB or with Spark."""
