"""Commands on tables, reports and Spark."""
