"""Errors that are those of persist and those of Pydantic AI."""

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic_ai.exceptions import UserError

from persist.errors import InvalidValue


class InvalidInput(InvalidValue, UserError):  # noqa: N818  # named like the errors it stands among
    """A value that cannot be stored: an InvalidValue, and also a UserError of the framework."""

    def __init__(self, path: str, reason: str) -> None:
        UserError.__init__(self, f"{path}: {reason}")
        InvalidValue.__init__(self, path, reason)


@contextmanager
def of_the_framework() -> Iterator[None]:
    """Raise InvalidInput for an InvalidValue."""
    try:
        yield
    except InvalidInput:
        raise
    except InvalidValue as error:
        raise InvalidInput(error.path, error.reason) from error
