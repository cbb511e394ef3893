"""Checks of a runner's arguments, made before anything is written."""

import json
import math
from collections.abc import Iterable, Mapping

from persist.app_sessions.schemas import ArtifactKey, Entries, InHand, NewEvent, NewMemory, StateChange
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_kind, check_list
from persist.errors import InvalidValue

Names = dict[str, str]


def names(work: UnitOfWork, **given: object) -> Names:
    """The checked names of an application, a user, a session or a file, as parameters of statements. They may be empty."""
    return {name: work.label(name, value, empty=True) for name, value in given.items()}


def json_text(work: UnitOfWork, path: str, value: object) -> str:
    """Checked JSON text. NaN and infinite numbers are allowed, as Python's own encoder writes them."""
    text = work.body(path, value)
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(path, f"it is not JSON: {error}.") from None
    return text


def seconds(path: str, value: object) -> float:
    """Seconds since 1970 as a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(path, f"expected a number of seconds, got {type(value).__name__}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidValue(path, "a time is a finite number of seconds.")
    return number


def entries(work: UnitOfWork, path: str, value: object) -> Entries:
    """Checked entries of a state."""
    return {
        work.label(f"{path} key", key, empty=True): json_text(work, f"{path}.{key}", text)
        for key, text in check_kind(path, value, Mapping).items()  # type: ignore[type-abstract]  # an abstract class is a class
    }


def change(work: UnitOfWork, value: object) -> StateChange:
    """A checked change of a state; None changes nothing."""
    given = StateChange() if value is None else check_kind("state", value, StateChange)
    return StateChange(
        app=entries(work, "state.app", given.app),
        user=entries(work, "state.user", given.user),
        session=entries(work, "state.session", given.session),
    )


def event(work: UnitOfWork, value: object) -> NewEvent:
    """A checked event."""
    given = check_kind("event", value, NewEvent)
    return NewEvent(
        id=work.label("event.id", given.id),
        timestamp=seconds("event.timestamp", given.timestamp),
        data=json_text(work, "event.data", given.data),
        author=work.body("event.author", given.author),
        invocation_id=work.body("event.invocation_id", given.invocation_id),
    )


def expected(work: UnitOfWork, value: object) -> str | InHand | None:
    """What the writer of an event expects to be stored: a marker, what it has in hand, or anything (None)."""
    if value is None or isinstance(value, InHand):
        return value
    return work.label("expected", value)


def artifact_key(work: UnitOfWork, value: object) -> Names:
    """The checked names of an artifact, as parameters of statements."""
    key = check_kind("key", value, ArtifactKey)
    session_id = "" if key.session_id is None else work.label("session_id", key.session_id)
    return {
        **names(work, app_name=key.app_name, user_id=key.user_id),
        "session_id": session_id,
        "filename": work.label("filename", key.filename),
    }


def memories(work: UnitOfWork, value: object) -> list[NewMemory]:
    """Checked memories. Of several with one id the last one counts, at the place of the first."""
    checked = {}
    for index, one in enumerate(check_list("memories", value)):
        path = f"memories[{index}]"
        given = check_kind(path, one, NewMemory)
        memory_id = work.label(f"{path}.id", given.id)
        text, found = work.body(f"{path}.text", given.text), words(work, f"{path}.words", given.words)
        checked[memory_id] = NewMemory(memory_id, json_text(work, f"{path}.entry", given.entry), text, found)
    return list(checked.values())


def words(work: UnitOfWork, path: str, value: object) -> list[str]:
    """Checked words: text without blanks. Each once, sorted."""
    found: Iterable[str] = (work.label(f"{path}[{index}]", one) for index, one in enumerate(check_list(path, value)))
    several = set(found)
    for word in several:
        if len(word.split()) != 1 or word != word.strip():
            raise InvalidValue(path, "a word holds a blank.")
    return sorted(several)
