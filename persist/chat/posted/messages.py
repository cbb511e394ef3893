"""The posted list: its form, its JSON as a browser sends it back, and what a user's message may hold."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from persist.chat.reducer.chunks import DATA_PREFIX
from persist.chat.reducer.partial_json import reaches_prototype
from persist.chat.schemas import Role
from persist.db.values.arguments import check_choice, required_label
from persist.db.values.escaping import has_half, join_halves
from persist.db.values.json import JsonText
from persist.errors import InvalidValue, shown

# JSON that went to a browser and back: equality as JavaScript sees it, and keys that would reach a prototype there.


def same(posted: Any, stored: Any) -> bool:
    """Whether a posted value is the stored one. A browser writes 1.0 as 1, and an integer from 2**53 on rounded."""
    kind = type(stored)
    if kind is str:
        return isinstance(posted, str) and (posted == stored or join_halves(posted) == stored)
    if kind is dict:
        if not isinstance(posted, dict) or posted.keys() != stored.keys():
            return False
        for key, value in stored.items():  # noqa: SIM110  # one frame a level: stored values may be nested deep
            if not same(posted[key], value):
                return False
        return True
    if kind is list:
        if not isinstance(posted, list) or len(posted) != len(stored):
            return False
        for one, value in zip(posted, stored, strict=True):  # noqa: SIM110  # as above
            if not same(one, value):
                return False
        return True
    if kind is int or kind is float:
        return type(posted) in (int, float) and (posted == stored or _as_float(posted) == float(stored))
    return posted is stored  # None, True, False


def _as_float(number: float) -> float | None:
    try:
        return float(number)
    except OverflowError:
        return None


def begins(posted: Any, stored: Any) -> bool:
    """Whether a posted text is the beginning of the stored one, which may end inside of a character."""
    if not isinstance(posted, str) or not isinstance(stored, str):
        return False
    if stored.startswith(posted):
        return True
    return has_half(posted) and _utf16(stored).startswith(_utf16(posted))


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def refuse_prototype(text: JsonText, value: Any, path: str) -> None:
    """Raise InvalidValue for a key by which JavaScript code would change the prototype of its objects. `text`: the JSON."""
    if ("__proto__" in text or "constructor" in text) and reaches_prototype(value):
        raise InvalidValue(path, "it has a key that would reach a JavaScript prototype.")


_COMPACTION = "data-compaction"
_OWNED = frozenset(("usage", "agent", "snapshot_id", "trigger", "system_prompt_digest", "queued_at", "hidden_at"))
_OWNED_PREFIX = "queue_"
_ABSENT = object()
_ROLES = frozenset(str(role) for role in Role)
_PLAIN_TEXT = {"type", "text"}


class Posted(NamedTuple):
    """A listed message with checked id, role and kinds of parts."""

    number: int
    id: str
    role: str
    parts: list[Any]
    metadata: Any

    @property
    def path(self) -> str:
        """The name of the message in errors."""
        return f"messages[{self.number}]"

    @property
    def is_silent(self) -> bool:
        """Whether it is an answer without a word: a browser shows one before the first chunk arrives."""
        return self.role == Role.ASSISTANT and all(part.get("type") == "step-start" for part in self.parts)


def possibly_new(posted: Sequence[Posted]) -> list[str]:
    """The ids under which messages may be added: those of the user's after the last answer."""
    ids = []
    for message in reversed(posted):
        if message.role == Role.USER:
            ids.append(message.id)
        elif not message.is_silent:
            break
    return ids


def check_messages(messages: object) -> list[Posted]:
    """The messages of the list, in which an id stands once. InvalidValue names the one that has not the form of a message."""
    if isinstance(messages, str | bytes | bytearray | Mapping) or not isinstance(messages, Sequence):
        raise InvalidValue("messages", f"expected a list of messages, got {type(messages).__name__}.")
    found, ids = [], set[str]()
    for index, message in enumerate(messages):
        posted = _checked(index, message)
        if posted.id in ids:
            raise InvalidValue(f"{posted.path}.id", f"{shown(posted.id)} stands in the list before.")
        ids.add(posted.id)
        found.append(posted)
    return found


def _checked(number: int, message: object) -> Posted:
    if not isinstance(message, dict):
        raise InvalidValue(f"messages[{number}]", "expected an object.")
    get = message.get
    id, role, parts = get("id"), get("role"), get("parts")
    if type(id) is not str or not id or not id.isascii() or "\x00" in id:
        id = required_label(f"messages[{number}].id", id)
    if type(role) is not str or role not in _ROLES:
        role = str(check_choice(f"messages[{number}].role", role, Role))
    if not isinstance(parts, list):
        raise InvalidValue(f"messages[{number}].parts", "expected a list of parts.")
    for part in parts:
        if not isinstance(part, dict):
            raise InvalidValue(f"messages[{number}].parts[{parts.index(part)}]", "expected an object.")
    return Posted(number, id, role, parts, get("metadata"))


def check_user_parts(posted: Posted) -> None:
    """Raise InvalidValue unless these are parts that the SDK lets a user's message have, with the fields they need."""
    if not posted.parts:
        raise InvalidValue(f"{posted.path}.parts", "a user's message has a part.")
    for index, part in enumerate(posted.parts):
        _check_user_part(f"{posted.path}.parts[{index}]", part)


def _check_user_part(path: str, part: Mapping[str, Any]) -> None:
    _check_texts(path, part, "type")
    kind = part["type"]
    if kind == "text":
        _check_texts(path, part, "text")
        if part.get("state", "done") not in ("streaming", "done"):
            raise InvalidValue(f"{path}.state", "expected streaming or done.")
    elif kind == "file":
        _check_texts(path, part, "mediaType", "url")
        if "filename" in part:
            _check_texts(path, part, "filename")
        reference = part.get("providerReference", {})
        if not isinstance(reference, dict) or not all(isinstance(value, str) for value in reference.values()):
            raise InvalidValue(f"{path}.providerReference", "expected an object of texts.")
    elif kind.startswith(DATA_PREFIX) and kind != _COMPACTION:
        if "data" not in part:
            raise InvalidValue(f"{path}.data", "it is missing.")
        if "id" in part:
            _check_texts(path, part, "id")
    else:
        raise InvalidValue(
            f"{path}.type", f"a user's message has no part of type {shown(kind)}: text, file and data parts alone."
        )
    metadata = part.get("providerMetadata", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, dict) for value in metadata.values()):
        raise InvalidValue(f"{path}.providerMetadata", "expected an object of objects.")


def _check_texts(path: str, part: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if not isinstance(part.get(name), str):
            raise InvalidValue(f"{path}.{name}", "expected text.")


def given_metadata(posted: Posted, stored: Mapping[str, Any]) -> dict[str, Any] | None:
    """The posted metadata without the keys that are not a browser's, which must be as stored; None if none was posted."""
    if posted.metadata is None:
        return None
    if not isinstance(posted.metadata, dict):
        raise InvalidValue(f"{posted.path}.metadata", "expected an object.")
    given = {}
    for key, value in posted.metadata.items():
        if not _owned(key):
            given[key] = value
        elif not same(value, stored.get(key, _ABSENT)):
            raise InvalidValue(f"{posted.path}.metadata.{key}", "this key is not the browser's.")
    return given


def edited_metadata(given: dict[str, Any] | None, stored: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of an edited message: the given one in place of the stored, but for keys that are not a browser's."""
    if given is None:
        return dict(stored)
    return {**{key: value for key, value in stored.items() if _owned(key)}, **given}


def _owned(key: object) -> bool:
    return isinstance(key, str) and (key in _OWNED or key.startswith(_OWNED_PREFIX))


def same_parts(posted: Posted, stored: Sequence[dict[str, Any]]) -> bool:
    """Whether the posted parts are the stored ones."""
    parts = posted.parts
    # where plain text is equal, it is the same; Python calls True and 1 equal elsewhere
    return (parts == stored and all(part.keys() == _PLAIN_TEXT for part in stored)) or same(parts, stored)


def same_metadata(given: Mapping[str, Any] | None, stored: Mapping[str, Any]) -> bool:
    """Whether what was given is stored. The server may have added other keys since the browser loaded the message."""
    return given is None or all(same(value, stored.get(key, _ABSENT)) for key, value in given.items())
