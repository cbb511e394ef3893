"""Validation and defaults of the columns that a session is created with or changed to; writes nothing."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from persist.conversations.schemas import InvocationKind, SourceKind, Status
from persist.conversations.storage.session_rows import SESSION
from persist.conversations.validation import node_metadata as checked_metadata
from persist.conversations.verbs.lifecycle import TERMINAL
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_choice, optional_label
from persist.db.values.clock import as_utc
from persist.db.values.json import Json, JsonText
from persist.errors import InvalidValue

Check = Callable[[UnitOfWork, str, Any], Any]


def label(work: UnitOfWork, path: str, value: Any) -> str | None:
    """A checked identifier, or None."""
    return optional_label(path, value)


def text(work: UnitOfWork, path: str, value: Any) -> str | None:
    """Checked text, or None."""
    return None if value is None else work.body(path, value)


def _kind(work: UnitOfWork, path: str, value: Any) -> InvocationKind | None:
    return None if value is None else check_choice(path, value, InvocationKind)


def _source(work: UnitOfWork, path: str, value: Any) -> SourceKind | None:
    return None if value is None else check_choice(path, value, SourceKind)


def instant(work: UnitOfWork, path: str, value: Any) -> datetime | None:
    """A checked aware datetime, or None."""
    return None if value is None else as_utc(path, value)


def _required_instant(work: UnitOfWork, path: str, value: Any) -> datetime:
    return as_utc(path, value)


def _metadata(work: UnitOfWork, path: str, value: Any) -> JsonText | None:
    metadata = checked_metadata(work, path, value)
    return None if metadata is None else work.json(path, metadata)


_PROVENANCE: dict[str, Check] = {
    "playbook_name": label,
    "agent_name": label,
    "invocation_kind": _kind,
    "show_topic": label,
    "show_play_name": label,
    "artifacts_path": label,
    "source_kind": _source,
}
_CHANGEABLE: dict[str, Check] = {
    **_PROVENANCE,
    "name": text,
    "user": label,
    "first_msg_id": label,
    "last_msg_id": label,
    "started_at": instant,
    "ended_at": instant,
    "last_message_at": instant,
    "updated_at": _required_instant,
    "node_metadata": _metadata,
}


def session_changes(work: UnitOfWork, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Checked columns of an update; InvalidValue names a column that cannot be changed."""
    for name in columns:
        if name not in _CHANGEABLE:
            raise InvalidValue(name, f"a session has no such column to change; there are {', '.join(_CHANGEABLE)}.")
    changes = {name: _CHANGEABLE[name](work, name, value) for name, value in columns.items()}
    if changes.get("ended_at") is not None:
        changes["ended_at_is_approximate"] = False
    return changes


def new_session(
    work: UnitOfWork, *, id: str | None, node_metadata: Json, status: str | None, provenance: Mapping[str, Any], **columns: Any
) -> dict[str, Any]:
    """Every column of a new session; `progression_id` is passed through as given."""
    for name in provenance:
        if name not in _PROVENANCE:
            raise InvalidValue(name, f"a session has no such column; its provenance is {', '.join(_PROVENANCE)}.")
    now = work.now()
    word = None if status is None else check_choice("status", status, Status)
    created, updated, progression = columns.pop("created_at"), columns.pop("updated_at"), columns.pop("progression_id")
    fields: dict[str, Any] = {
        **dict.fromkeys(SESSION.fields),
        "source_kind": SourceKind.LIVE,
        **session_changes(work, {**columns, **provenance, "node_metadata": node_metadata}),
        "id": work.runtime.ids.mint_uuid() if id is None else work.label("id", id),
        "progression_id": optional_label("progression_id", progression),
        "created_at": now if created is None else as_utc("created_at", created),
        "updated_at": now if updated is None else as_utc("updated_at", updated),
        "status": word,
        "ended_at_is_approximate": False,
    }
    if word is Status.RUNNING and fields["started_at"] is None:
        fields["started_at"] = now
    fields["last_message_at"] = fields["started_at"] or now
    if word in TERMINAL and fields["ended_at"] is None:
        known = (fields["created_at"], fields["started_at"], fields["updated_at"] if updated is not None else None)
        fields["ended_at"] = max(at for at in known if at is not None)
        fields["ended_at_is_approximate"] = True
    return fields
