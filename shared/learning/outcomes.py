"""What a call returned or raised, as a value that one process can send to others."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """The value or the error of a call that has ended."""

    value: Any
    error: Exception | None

    def result(self) -> Any:
        """Return what the call returned, or raise its error."""
        if self.error is not None:
            raise self.error
        return self.value


def outcome_of(call: Callable[[], Any]) -> Outcome:
    """The outcome of call()."""
    try:
        return Outcome(call(), None)
    except Exception as error:
        return Outcome(None, error)
