"""Simulated visitors, to see a page that lives."""
