"""Stores of durable jobs: SQLite in one file, PostgreSQL for several brokers, and one in memory that the others are tested against."""
