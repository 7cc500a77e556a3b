"""What can be wrong with a call, whatever the protocol."""


class NotFound(LookupError):
    """There is no such loop, or decision."""


class Conflict(ValueError):
    """It is there already."""
