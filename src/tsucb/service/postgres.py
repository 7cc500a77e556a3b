"""The store of several machines: PostgreSQL."""
