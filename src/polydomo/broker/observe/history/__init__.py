"""The figures of the last hour and the last day, by service."""
