"""Events, values of state and parts as JSON text, and back. Python's own JSON keeps NaN, large integers and the order of keys."""

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar, get_args

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.state import State
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from persist.db.values.arguments import check_kind
from persist.errors import Conflict, NotFound, StoreCorrupt, named
from persist.framework_state.app_sessions.schemas import NewEvent, StateChange
from persist.integrations.json_keys import check_keys
from persist.integrations.store_bridge import InvalidForFramework, kind_of


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


M = TypeVar("M", bound=BaseModel)


class _Encoder(json.JSONEncoder):
    """Encodes what JSON has, and the JSON form of models, dates and the like. `found_bytes`: bytes were encoded, as base64."""

    found_bytes = False

    def default(self, value: Any) -> Any:
        if isinstance(value, bytes | bytearray | memoryview):
            self.found_bytes = True
            return base64.urlsafe_b64encode(value).decode()
        check_keys("", value, none="None")
        return to_jsonable_python(value)


def model_text(path: str, model: BaseModel) -> str:
    """The JSON text of a model. Raises InvalidArgument for what would be read back as something else, or not at all."""
    encoder = _Encoder(separators=(",", ":"))
    dumped: dict[str, Any] | None = None
    with suppress(PydanticSerializationError):  # a field was given what is not of its kind, after the model was built
        dumped = model.model_dump(exclude_none=True, warnings="error")
    text = _text_that_can_be_read_back(path, model, encoder) if dumped is None else _encoded(path, dumped, encoder)
    if encoder.found_bytes:
        _check_bytes(path, model)
    return text


def model_of(kind: type[M], text: str, what: str) -> M:
    """The model of a stored text. Raises StoreCorrupt if it is none."""
    try:
        return kind.model_validate(json.loads(text))
    except (ValueError, RecursionError, ValidationError) as error:
        found = kind_of(error)
    raise StoreCorrupt(what, f"it cannot be read as {kind.__name__} of the framework: {found}.")


def value_text(path: str, value: Any) -> str:
    """The JSON text of a value. Raises InvalidArgument for bytes, and for what has no JSON form."""
    encoder = _Encoder(separators=(",", ":"))
    text = _encoded(path, value, encoder)
    if encoder.found_bytes:
        raise InvalidArgument(path, "bytes would be read back as text; save them as an artifact.")
    return text


def mapping(path: str, value: object) -> dict[str, Any]:
    """The entries of a mapping; none for None. Raises InvalidArgument for anything else."""
    if value is not None and not isinstance(value, Mapping):
        raise InvalidArgument(path, f"expected a mapping, got {type(value).__name__}.")
    return dict(value or {})


def change_of(delta: Mapping[str, Any] | None) -> StateChange:
    """The change of a state, by scope. Keys of the scope `temp:` are left out."""
    app, user, session = {}, {}, {}
    for key, value in mapping("state", delta).items():
        if not isinstance(key, str):
            raise InvalidArgument("state", f"a key is text, and {key!r} is not.")
        if key.startswith(State.TEMP_PREFIX):
            continue
        text = value_text(f"state[{key!r}]", value)
        if key.startswith(State.APP_PREFIX):
            app[key.removeprefix(State.APP_PREFIX)] = text
        elif key.startswith(State.USER_PREFIX):
            user[key.removeprefix(State.USER_PREFIX)] = text
        else:
            session[key] = text
    return StateChange(app=app, user=user, session=session)


def state_of(state: StateChange) -> dict[str, Any]:
    """The state as the framework has it: all scopes in one, with their prefixes."""
    return {
        **values_of(state.session),
        **{State.APP_PREFIX + key: value for key, value in values_of(state.app).items()},
        **{State.USER_PREFIX + key: value for key, value in values_of(state.user).items()},
    }


def values_of(entries: Mapping[str, str]) -> dict[str, Any]:
    """The values of entries of one scope. Raises StoreCorrupt for one that is no JSON."""
    return {key: stored_value(f"the state {named(key)}", text) for key, text in entries.items()}


def stored_value(what: str, text: str) -> Any:
    """The value of a stored text. Raises StoreCorrupt if it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        found = kind_of(error)
    raise StoreCorrupt(what, f"it is no JSON: {found}.")


def stored_event(event: Event) -> tuple[NewEvent, StateChange]:
    """An event as it is stored, without the scope `temp:`, and its change of the state."""
    delta = check_kind("event.actions", event.actions, EventActions).state_delta or {}
    change = change_of(delta)
    kept = {key: value for key, value in delta.items() if not key.startswith(State.TEMP_PREFIX)}
    if len(kept) < len(delta):
        event = event.model_copy(update={"actions": event.actions.model_copy(update={"state_delta": kept})})
    text = model_text("event", event)
    return NewEvent(event.id, event.timestamp, text, event.author, event.invocation_id), change


def _encoded(path: str, value: Any, encoder: _Encoder) -> str:
    with InvalidArgument.raised():
        check_keys(path, value)
    try:
        return encoder.encode(value)
    except (TypeError, ValueError, RecursionError, PydanticSerializationError) as error:
        found = kind_of(error)
    raise InvalidArgument(path, f"it has no JSON form: {found}.")


def _text_that_can_be_read_back(path: str, model: BaseModel, encoder: _Encoder) -> str:
    try:
        text = _encoded(path, model.model_dump(exclude_none=True, warnings=False), encoder)
        type(model).model_validate(json.loads(text))
        return text
    except InvalidArgument:
        raise
    except (ValueError, TypeError, AttributeError, RecursionError) as error:  # validators of the framework expect what they know
        found = kind_of(error)
    raise InvalidArgument(path, f"it could not be read back: {found}.")


def _check_bytes(path: str, value: Any, *, typed: bool = False) -> None:
    """Raises InvalidArgument if bytes are anywhere but in a field that is declared to hold them."""
    if isinstance(value, bytes | bytearray | memoryview):
        if not typed:
            raise InvalidArgument(path, "bytes would be read back as text; save them as an artifact.")
    elif isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            declared = (field.annotation, *get_args(field.annotation))
            _check_bytes(f"{path}.{name}", getattr(value, name), typed=bytes in declared)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _check_bytes(f"{path}.{key}", item)
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            _check_bytes(f"{path}[{index}]", item)
