"""What can be wrong with a call, whatever the protocol."""


class NotFound(LookupError):
    """There is no such loop, or decision."""


class TooLarge(ValueError):
    """The model of the loop would need more memory than it may have."""


class Conflict(ValueError):
    """It is there already."""
