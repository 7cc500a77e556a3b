"""Logged data: reading it, replaying policies over it, and estimating what others had earned."""
