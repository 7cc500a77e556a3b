"""The news click log: its reader, a generator of logs of the same form, and its click model."""
