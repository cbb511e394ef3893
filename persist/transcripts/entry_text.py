"""Entries as JSON text. What is read is equal to what was given, for every value that `json` itself writes and reads."""

import json
import logging
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NamedTuple

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.arguments import check_list
from persist.db.values.escaping import escape_text, utf8_size
from persist.errors import InvalidValue
from persist.quoting import shown

log = logging.getLogger("persist")

Entry = dict[str, Any]

_MAX_UUID_BYTES = 500
_PLAIN = {str, int, float, bool, type(None)}


class Given(NamedTuple):
    """An entry to append, its text, and the labels that it may be stored under: none without a `uuid`.

    uuid     what names the entry in its part
    further  a digest of the uuid and the content, for an entry whose uuid another one has
    """

    entry: Entry
    text: str
    uuid: str | None
    further: str | None


def entries_of(work: UnitOfWork, path: str, value: object) -> list[Given]:
    """The entries of a list, each with its text and labels. Raises InvalidValue for anything but JSON objects."""
    return [_given(entry, text_of(work, f"{path}[{at}]", entry, kind=dict)) for at, entry in enumerate(check_list(path, value))]


def _given(entry: Entry, text: str) -> Given:
    uuid = _uuid_of(entry)
    return Given(entry, text, uuid, None if uuid is None else _further(uuid, entry))


def text_of(work: UnitOfWork, path: str, value: object, *, kind: type | None = None) -> str:
    """The JSON text of a value. Raises InvalidValue for what would be read back as something else, such as a tuple."""
    if kind is not None and type(value) is not kind:
        raise InvalidValue(path, f"expected a {kind.__name__}, got {type(value).__name__}.")
    _check(path, value, work.runtime.limits.max_depth)
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except ValueError as error:  # an integer of more digits than Python writes
        raise InvalidValue(path, f"it is no JSON: {error}.") from None
    return work.body(path, text)


def _check(path: str, value: object, depth: int) -> None:
    kind = type(value)
    if kind in _PLAIN:
        return
    if depth == 0:
        raise InvalidValue(path, "it is nested too deep.")
    if kind is dict:
        for key, item in value.items():  # type: ignore[attr-defined]  # kind is dict
            if type(key) is not str:
                raise InvalidValue(path, f"the key {shown(key)} is not a string.")
            if type(item) not in _PLAIN:
                _check(f"{path}.{key}", item, depth - 1)
    elif kind is list:
        for index, item in enumerate(value):  # type: ignore[arg-type]  # kind is list
            if type(item) not in _PLAIN:
                _check(f"{path}[{index}]", item, depth - 1)
    else:
        raise InvalidValue(path, f"{kind.__name__} is not a JSON value.")


def stored_entries(id: str, texts: Iterable[str]) -> list[Entry]:
    """The entries of stored texts. One that another program made unreadable is left out, with a warning."""
    found = []
    for text in texts:
        entry = value_of(text)
        if isinstance(entry, dict):
            found.append(entry)
        else:
            log.warning("an entry of the transcript of session %s is left out: it is no JSON object", shown(id))
    return found


def value_of(text: str | None) -> Any:
    """The value of a stored text; None for NULL and for text that is no JSON."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _uuid_of(entry: Entry) -> str | None:
    """What names an entry in its part: its `uuid`, escaped, a digest of a very long one; None if it has none."""
    uuid = entry.get("uuid")
    if not isinstance(uuid, str) or not uuid:
        return None
    label = escape_text(uuid, nul=True)
    return label if utf8_size(label) <= _MAX_UUID_BYTES else _digest(label)


def labels_of(given: Iterable[Given]) -> list[str]:
    """The labels under which these entries are stored if they are stored already."""
    return list(dict.fromkeys(label for one in given for label in (one.uuid, one.further) if label is not None))


def new_entries(
    given: Iterable[Given], stored: Iterable[tuple[str, str]], alike: Iterable[Entry] | None = None
) -> list[tuple[Entry, str, str | None]]:
    """The given entries that are not stored yet, each with its text and its label.

    `stored`: the labels and texts of stored ones. The first entry with a uuid is stored under it, one that shares it and differs
    under a digest of both. `alike`: stored entries without a uuid; each stands for one given entry that equals it.
    """
    counts = Counter(map(_canonical, alike or ()))
    seen = {label: None if is_unreadable(text) else _further(label, value_of(text)) for label, text in stored}
    found = []
    for entry, text, label, further in given:
        if label is not None and further is not None:
            if label in seen and (seen[label] == further or (label := further) in seen):
                continue
            seen[label] = further
        elif counts and counts[key := _canonical(entry)]:
            counts[key] -= 1
            continue
        found.append((entry, text, label))
    return found


def _further(uuid: str, entry: Entry) -> str:
    """The label of an entry whose uuid another one has: rows are unique by it, so that it is stored once, too."""
    return _digest(f"{uuid}\n{_canonical(entry)}")


def _digest(text: str) -> str:
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def _canonical(entry: Any) -> str:
    return json.dumps(entry, sort_keys=True)
