"""From the files of a run to columns and messages: statuses, instants and ids in the spellings that runtimes use."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from persist.conversations.schemas import InvocationKind, Status
from persist.db.values.arguments import check_label
from persist.db.values.clock import EPOCH
from persist.errors import InvalidValue

_STATUSES: dict[str, Status] = {
    **{status.value: status for status in Status},
    "success": Status.COMPLETED,
    "error": Status.FAILED,
    "timeout": Status.TIMED_OUT,
    "canceled": Status.CANCELLED,
}
_EXIT_CODES = {0: Status.COMPLETED, 1: Status.FAILED, 124: Status.TIMED_OUT, 130: Status.ABORTED, 143: Status.CANCELLED}
_KINDS = {kind.value: kind for kind in InvocationKind}
_LABELS = {
    "agent_name": ("agent_name", "agent"),
    "playbook_name": ("playbook_name", "playbook"),
    "show_topic": ("show_topic",),
    "show_play_name": ("show_play_name",),
    "artifacts_path": ("artifacts_path", "artifact_root"),
    "user": ("user",),
    "name": ("name", "title"),
}
_INSTANTS = {
    "created_at": ("created_at", "timestamp", "ts"),
    "started_at": ("started_at",),
    "ended_at": ("ended_at", "finished_at"),
    "updated_at": ("updated_at",),
}
_PLAIN = ("content", "embedding", "role")
_ADDRESSES = ("sender", "recipient", "channel")


def status_of(manifest: Mapping[str, Any]) -> Status:
    """A run's status: the word in its manifest, else what its exit code means, else that it has ended."""
    word = manifest.get("status")
    if isinstance(word, str) and word.strip():
        return _STATUSES.get(word.strip().lower().replace("-", "_"), Status.COMPLETED)
    code = next((manifest[name] for name in ("exit_code", "exitCode", "returncode") if type(manifest.get(name)) is int), None)
    return Status.COMPLETED if code is None else _EXIT_CODES.get(code, Status.FAILED)


def manifest_columns(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a session that a manifest fills; other columns are missing."""
    columns: dict[str, Any] = {name: first_text(manifest, *spellings) for name, spellings in _LABELS.items()}
    for name, spellings in _INSTANTS.items():
        columns[name] = next((at for at in (instant(manifest.get(one)) for one in spellings) if at is not None), None)
    kind = first_text(manifest, "invocation_kind", "kind")
    columns["invocation_kind"] = None if kind is None else _KINDS.get(kind.lower().replace("_", "-"))
    return {name: value for name, value in columns.items() if value is not None}


def message_of(entry: Any, fallback: datetime) -> dict[str, Any] | None:
    """A message as `messages.put` takes it, with known fields only; None if the entry is no message.

    A message without an instant gets `fallback`. The content is checked by `put`.
    """
    if not isinstance(entry, dict):
        return None
    id = first_text(entry, "id")
    if id is None:
        return None
    message: dict[str, Any] = {name: entry.get(name) for name in _PLAIN}
    message |= {name: entry.get(name) or None for name in _ADDRESSES}
    metadata = entry.get("node_metadata", entry.get("metadata"))
    if isinstance(entry.get("lion_class"), str) and (metadata is None or isinstance(metadata, dict)):
        metadata = {"lion_class": entry["lion_class"], **(metadata or {})}
    at = entry.get("created_at")
    exact = isinstance(at, int | float) and instant(at) is not None
    return {**message, "id": id, "node_metadata": metadata, "created_at": at if exact else instant(at) or fallback}


def instant(value: object) -> datetime | None:
    """Seconds since 1970, or ISO 8601 text, UTC unless it says; None for what is neither."""
    try:
        if isinstance(value, str):
            at = datetime.fromisoformat(value)
            return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
            return EPOCH + timedelta(seconds=value)
    except (ValueError, OverflowError):
        pass
    return None


def first_text(holder: Mapping[str, Any], *names: str) -> str | None:
    """The first value that is text and valid as an identifier."""
    for name in names:
        value = holder.get(name)
        if isinstance(value, str) and value.strip():
            try:
                return check_label(name, value)
            except InvalidValue:
                continue
    return None
