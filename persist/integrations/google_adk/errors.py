"""Errors that are those of persist and of Google ADK at once."""

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.errors.session_not_found_error import SessionNotFoundError

from persist.errors import Conflict, NotFound
from persist.integrations.framework_errors import InvalidForFramework


class InvalidArgument(InvalidForFramework, InputValidationError):  # noqa: N818  # named like the errors it stands among
    """An argument that cannot be stored as it is: an InvalidValue, and also an InputValidationError of the framework."""


class SessionExists(Conflict, AlreadyExistsError):  # noqa: N818  # named like the errors it stands among
    """The id of a new session is taken: a Conflict, and also an AlreadyExistsError of the framework."""

    def __init__(self, session_id: str) -> None:
        message = f"Session with id {session_id} already exists."
        AlreadyExistsError.__init__(self, message)
        Conflict.__init__(self, message, constraint="uq_app_user_sessions_app_name_user_id_session_id")


class SessionStale(Conflict, StaleSessionError):  # noqa: N818  # named like the errors it stands among
    """Another writer has appended to the session since it was read: a Conflict, and a StaleSessionError of the framework."""

    def __init__(self, session_id: str) -> None:
        message = f"The session {session_id!r} was changed by another writer since it was read; read it again, then append."
        StaleSessionError.__init__(self, message)
        Conflict.__init__(self, message, constraint="app_user_sessions.revision")


class SessionMissing(NotFound, SessionNotFoundError):  # noqa: N818  # named like the errors it stands among
    """There is no such session: a NotFound, and also a SessionNotFoundError of the framework."""

    def __init__(self, session_id: str) -> None:
        SessionNotFoundError.__init__(self, f"Session {session_id} not found.")
        NotFound.__init__(self, "session", session_id)
