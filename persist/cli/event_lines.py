"""An event on one line."""

from collections import Counter
from typing import Any

from persist.cli.output import inline, shortened
from persist.events.schemas import Event

_SIGNS = {"put": "+", "set": "~", "delete": "-"}
_MAX = 200


def event_fields(event: Event) -> dict[str, Any]:
    """The event for scripts."""
    return {
        "position": event.position,
        "stream_id": event.stream_id,
        "seq": event.seq,
        "type": event.type,
        "at": event.at.isoformat(),
        "actor": event.actor,
        "data": event.data,
    }


def summary(event: Event) -> str:
    """What happened: text that came, or how many rows of which tables were added (+), changed (~) and deleted (-)."""
    changes = event.data.get("changes") if isinstance(event.data, dict) else None
    if not isinstance(changes, list):
        return shortened(event.data, _MAX)
    texts = [row["delta"] for change in changes if isinstance((row := change.get("row", {})).get("delta"), str)]
    if texts and len(texts) == len(changes):
        return shortened("".join(texts), _MAX)
    counts = Counter((_SIGNS.get(change["op"], "?"), change["table"]) for change in changes)
    rows = ", ".join(f"{sign}{count:,} {inline(table)}" for (sign, table), count in counts.items())
    parts = [f"{inline(str(part.get('type')))}{_said(part)}" for change in changes if (part := _part(change)) is not None]
    return "; ".join([*parts, rows]) if len(parts) == 1 else rows


def _part(change: dict[str, Any]) -> dict[str, Any] | None:
    """The part of a message that the change wrote, if it did."""
    part = change.get("row", {}).get("data_json") if change["table"] == "chat_parts" else None
    return part if isinstance(part, dict) else None


def _said(part: dict[str, Any]) -> str:
    said = part.get("text") or part.get("state")
    return f": {shortened(said, _MAX)}" if isinstance(said, str) else ""
