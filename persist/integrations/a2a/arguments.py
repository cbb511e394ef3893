"""Arguments of the stores of A2A, checked, and the errors for them: those of persist and of the framework at once."""

from a2a.auth.user import User
from a2a.server.context import ServerCallContext
from a2a.server.owner_resolver import OwnerResolver
from a2a.utils.errors import InvalidParamsError

from persist.db.values.arguments import check_kind
from persist.db.values.escaping import escape_text
from persist.errors import Conflict
from persist.integrations.framework_errors import InvalidForFramework
from persist.store.async_store import AsyncStore
from persist.store.store import Store


class InvalidTask(InvalidForFramework, InvalidParamsError):  # noqa: N818  # named like the errors it stands among
    """A task, configuration, token or argument that is refused: an InvalidValue, and an InvalidParamsError of the framework."""


class TaskEnded(Conflict, InvalidParamsError):  # noqa: N818  # named like the errors it stands among
    """A task that ended cannot go on or end otherwise: a Conflict, and an InvalidParamsError of the framework."""

    def __init__(self, reason: str) -> None:
        InvalidParamsError.__init__(self, reason)
        Conflict.__init__(self, reason)


def owner_of(resolver: OwnerResolver, context: object) -> str:
    """The owner whom a context names, as it is stored. Raises InvalidTask for what is no context."""
    with InvalidTask.raised():
        given = check_kind("context", context, ServerCallContext)
        check_kind("context.user", given.user, User)  # type: ignore[type-abstract]  # an abstract class is a class
    return label_of("owner", resolver(given))


def check_store(store: object, resolver: object) -> None:
    """Raises InvalidTask for what is no store, or no function that names owners."""
    if not isinstance(store, Store | AsyncStore):
        raise InvalidTask("store", f"expected a Store or an AsyncStore, got {type(store).__name__}.")
    if not callable(resolver):
        raise InvalidTask("owner_resolver", f"expected a function, got {type(resolver).__name__}.")


def label_of(path: str, value: object) -> str:
    """The text of an id or an owner, as it is stored. Raises InvalidTask for anything but text."""
    if not isinstance(value, str):
        raise InvalidTask(path, f"expected text, got {type(value).__name__}.")
    return escape_text(value, nul=True)
