"""Typed tables of the payloads that the journal records: the only tables that need Python in tasks."""
