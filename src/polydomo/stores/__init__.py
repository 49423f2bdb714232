"""Stores of durable jobs: SQLite in one file, PostgreSQL shared by several brokers, and an in-memory reference for tests."""
