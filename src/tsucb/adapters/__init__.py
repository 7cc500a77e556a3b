"""Agents behind the interfaces of other libraries, one file per library."""
