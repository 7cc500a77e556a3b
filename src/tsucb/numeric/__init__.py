"""Arithmetic that knows nothing of bandits: random bursts and special functions."""
