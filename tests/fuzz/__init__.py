"""Arbitrary bytes for everything that reads what others send: events or a clear error, in time and memory of their size."""
