"""The agent inside other libraries' interfaces: one file per library, which must be installed."""
