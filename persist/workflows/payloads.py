"""The split rule: what a run keeps of its phases is small, and large text lives elsewhere.

`scratch`, `context` and `node_statuses` are objects whose every value has a cap (`Settings.max_scratch_bytes`, of its JSON
text); so has an entry of the phase history. Source: the Last Light state document, "The split rule".
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from persist.db.clock import iso_ms
from persist.db.escape import utf8_size
from persist.db.json import Json, encode
from persist.db.spoilt import is_unreadable
from persist.db.work import Work
from persist.errors import InvalidValue, PayloadTooLarge
from persist.quoting import shown

_ADVICE = "Keep large text in executions.set_output or in the session log, and only its id here."


def small(work: Work, path: str, value: Json) -> Json:
    """A checked JSON value within the cap."""
    size, limit = utf8_size(encode(value, path, work.runtime.limits)), work.runtime.settings.max_scratch_bytes
    if size > limit:
        raise PayloadTooLarge(path, size, limit, advice=_ADVICE)
    return value


def small_label(work: Work, path: str, value: object) -> str:
    """A checked name within the cap, since names are kept and listed with what they name."""
    name = work.label(path, value)
    small(work, path, name)
    return name


def small_values(work: Work, path: str, value: object) -> dict[str, Any]:
    """A checked JSON object, each of its keys and values within the cap."""
    if not isinstance(value, Mapping):
        raise InvalidValue(path, "expected an object.")
    checked = work.json_object(path, value)
    if utf8_size(encode(checked, path, work.runtime.limits)) > work.runtime.settings.max_scratch_bytes:
        for key, one in checked.items():
            small(work, path, key)
            small(work, f"{path}.{key}", one)
    return checked


def context_of(work: Work, value: Json) -> dict[str, Any] | None:
    """A run's context: an object, or nothing."""
    return None if value is None else small_values(work, "context", value)


def history_item(work: Work, phase: object, entry: Json, at: datetime) -> dict[str, Any]:
    """What the phase history keeps: the phase and the instant, then the entry (under "value" unless it is an object)."""
    name = small_label(work, "phase", phase)
    small(work, "entry", entry)
    extra = {} if entry is None else dict(entry) if isinstance(entry, Mapping) else {"value": entry}
    if extra.get("phase", name) != name:
        raise InvalidValue("entry.phase", f"it says another phase than {shown(name)}.")
    return {"phase": name, "timestamp": iso_ms(at), **extra}


def history_with(work: Work, history: list[Any], item: dict[str, Any]) -> Any:
    """The history and one more item, as a whole within its cap."""
    longer = work.json("phase_history", [*history, item])
    size, limit = utf8_size(encode(longer, "phase_history", work.runtime.limits)), work.runtime.settings.max_history_bytes
    if size > limit:
        raise PayloadTooLarge("phase_history", size, limit, advice=_ADVICE)
    return longer


def with_error(work: Work, context: dict[str, Any] | None, error: str | None, *, path: str = "error") -> dict[str, Any] | None:
    """The context with that error in it: the one change that a context ever sees. One that cannot be read stays as it is."""
    if error is None:
        return context
    said = small(work, path, work.body(path, error))
    return context if is_unreadable(context) else {**(context or {}), "error": said}


def marker_of(marker: object) -> tuple[Any, Any]:
    """A (phase, entry) pair."""
    if not isinstance(marker, tuple | list) or len(marker) != 2:
        raise InvalidValue("marker", "expected a pair of phase and entry.")
    return marker[0], marker[1]
