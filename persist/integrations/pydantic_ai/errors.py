"""Errors that are those of persist and those of Pydantic AI."""

from pydantic_ai.exceptions import UserError

from persist.integrations.framework_errors import InvalidForFramework


class InvalidInput(InvalidForFramework, UserError):  # noqa: N818  # named like the errors it stands among
    """A value that cannot be stored: an InvalidValue, and also a UserError of the framework."""
