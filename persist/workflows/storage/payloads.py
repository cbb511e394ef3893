"""Last Light's split rule (docs/designs.md): a run stores only small facts about its phases; large text is stored elsewhere.

`scratch`, `context` and `node_statuses` are objects whose every value has a cap (`Settings.max_scratch_bytes`, of its JSON
text); so has an entry of the phase history.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.clock import iso_ms
from persist.db.values.escaping import utf8_size
from persist.db.values.json import Json, encode
from persist.errors import InvalidValue, PayloadTooLarge
from persist.quoting import shown

_ADVICE = "Keep large text in executions.set_output or in the session log, and only its id here."


def small(work: UnitOfWork, path: str, value: Json) -> Json:
    """A checked JSON value within the cap."""
    size, limit = utf8_size(encode(value, path, work.runtime.limits)), work.runtime.settings.max_scratch_bytes
    if size > limit:
        raise PayloadTooLarge(path, size, limit, advice=_ADVICE)
    return value


def small_label(work: UnitOfWork, path: str, value: object) -> str:
    """A checked name within the cap, since names are stored and listed together with their values."""
    name = work.label(path, value)
    small(work, path, name)
    return name


def small_values(work: UnitOfWork, path: str, value: object) -> dict[str, Any]:
    """A checked JSON object, each of its keys and values within the cap."""
    if not isinstance(value, Mapping):
        raise InvalidValue(path, "expected an object.")
    checked = work.json_object(path, value)
    if utf8_size(encode(checked, path, work.runtime.limits)) > work.runtime.settings.max_scratch_bytes:
        for key, one in checked.items():
            small(work, path, key)
            small(work, f"{path}.{key}", one)
    return checked


def context_of(work: UnitOfWork, value: Json) -> dict[str, Any] | None:
    """A run's checked context: an object or None."""
    return None if value is None else small_values(work, "context", value)


def history_item(work: UnitOfWork, phase: object, entry: Json, at: datetime) -> dict[str, Any]:
    """An item of the phase history: phase and instant, then the entry's fields (or "value" if the entry is no object)."""
    name = small_label(work, "phase", phase)
    small(work, "entry", entry)
    extra = {} if entry is None else dict(entry) if isinstance(entry, Mapping) else {"value": entry}
    if extra.get("phase", name) != name:
        raise InvalidValue("entry.phase", f"it says another phase than {shown(name)}.")
    return {"phase": name, "timestamp": iso_ms(at), **extra}


def history_with(work: UnitOfWork, history: list[Any], item: dict[str, Any]) -> Any:
    """The history with one more item. Raises PayloadTooLarge if it exceeds `max_history_bytes`."""
    longer = work.json("phase_history", [*history, item])
    size, limit = utf8_size(encode(longer, "phase_history", work.runtime.limits)), work.runtime.settings.max_history_bytes
    if size > limit:
        raise PayloadTooLarge("phase_history", size, limit, advice=_ADVICE)
    return longer


def with_error(
    work: UnitOfWork, context: dict[str, Any] | None, error: str | None, *, path: str = "error"
) -> dict[str, Any] | None:
    """The context with that error, the only change a context ever gets. An unreadable context stays unchanged."""
    if error is None:
        return context
    message = small(work, path, work.body(path, error))
    return context if is_unreadable(context) else {**(context or {}), "error": message}


def marker_of(marker: object) -> tuple[Any, Any]:
    """The marker, checked to be a (phase, entry) pair."""
    if not isinstance(marker, tuple | list) or len(marker) != 2:
        raise InvalidValue("marker", "expected a pair of phase and entry.")
    return marker[0], marker[1]
