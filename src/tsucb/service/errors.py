"""What can be wrong with a call, whatever the protocol."""


class NotFound(LookupError):
    """There is no such loop, or decision."""


class TooLarge(ValueError):
    """The model of the loop would need more memory than it may have."""


class Conflict(ValueError):
    """It is there already."""


class StoreError(Exception):
    """The store could not do what was asked; nothing was acknowledged."""


class Overloaded(Exception):
    """More requests wait than may wait; `seconds` is when to try again."""

    def __init__(self, seconds: int = 1) -> None:
        super().__init__(f"the service is at its capacity; try again in {seconds} s")
        self.seconds = seconds
