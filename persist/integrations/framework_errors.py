"""Errors that are those of persist and of a framework at once, made and raised in one way by every adapter."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from persist.errors import InvalidValue


class InvalidForFramework(InvalidValue):  # named like the errors it stands among
    """An InvalidValue that is an error of a framework, too: `class InvalidTask(InvalidForFramework, InvalidParamsError)`.

    `_before`: what the framework's error is given before its message.
    """

    _framework: ClassVar[Any]
    _before: ClassVar[tuple[Any, ...]] = ()

    def __init_subclass__(cls) -> None:
        if InvalidForFramework in cls.__bases__:
            cls._framework = cls.__bases__[-1]

    def __init__(self, path: str, reason: str) -> None:
        self._framework.__init__(self, *self._before, f"{path}: {reason}" if path else reason)
        InvalidValue.__init__(self, path, reason)

    @classmethod
    @contextmanager
    def raised(cls) -> Iterator[None]:
        """Raise what is an InvalidValue as an error of this class."""
        try:
            yield
        except cls:
            raise
        except InvalidValue as error:
            raise cls(error.path, error.reason) from error
