"""Compaction: a marker message with a summary. No message is hidden, but the model's view begins with the summary."""

from typing import Any

from persist.chat.schemas import ChatMessage, Files, Role, SummaryAs, UIMessage
from persist.chat.storage.message_insert import Posting, check_parts, post
from persist.chat.storage.transcript import all_messages, fetch_all
from persist.chat.storage.usage import COMPACTION, NEWEST_MARKER, marker_value, since_boundary
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import InvalidValue


def compact(
    work: UnitOfWork, session_id: str, *, summary: str, tail_start_id: str | None, auto: bool, summary_tokens: int
) -> ChatMessage:
    """Append the marker message. Raises NotFound if `tail_start_id` is not a visible message of the session."""
    work.body("summary", summary)
    if type(auto) is not bool:
        raise InvalidValue("auto", "expected True or False.")
    if type(summary_tokens) is not int or not 0 <= summary_tokens < 2**53:
        raise InvalidValue("summary_tokens", "expected a whole number of tokens, 0 or more.")
    if tail_start_id is not None:
        work.label("tail_start_id", tail_start_id)
    data = {"summary": summary, "tail_start_id": tail_start_id, "auto": auto, "summary_tokens": summary_tokens}
    parts = check_parts(work, session_id, [{"type": COMPACTION, "data": data}])
    usage = {"input": summary_tokens, "output": 0, "reasoning": 0, "cache_read": 0, "cache_write": 0}
    return post(work, Posting(session_id, Role.ASSISTANT, parts, {"usage": usage}), id=None, tail=tail_start_id)


def model_view(work: UnitOfWork, session_id: str, summary_as: SummaryAs, files: Files) -> list[UIMessage]:
    """The summary, the messages from `tail_start_id` to the newest visible marker, and those after it.

    Every visible message if there is no marker.
    """
    with work.batch() as batch:
        all_of_it = fetch_all(batch, session_id)
        newest = batch.row(NEWEST_MARKER, row_id=session_id)
    visible = all_messages(work, session_id, *all_of_it, files=files)
    marker = marker_value(newest.result)
    if marker is None:
        return visible
    view = since_boundary(visible, *marker)
    return [_as_text(message) for message in view] if summary_as == SummaryAs.TEXT else view


def _as_text(message: UIMessage) -> UIMessage:
    """A marker with its summary as text, as a user message, which many providers require first. Other messages are unchanged.

    A marker with further parts stays the assistant's. Earlier markers in the tail are converted too: nothing else tells the
    model what they summarise.
    """
    texts = [_text_of(part) for part in message["parts"]]
    if not any(texts):
        return message
    parts = [part if text is None else text for part, text in zip(message["parts"], texts, strict=True)]
    return {**message, "role": message["role"] if None in texts else str(Role.USER), "parts": parts}


def _text_of(part: dict[str, Any]) -> dict[str, Any] | None:
    data = part.get("data") if part.get("type") == COMPACTION else None
    summary = data.get("summary") if isinstance(data, dict) else None
    return {"type": "text", "text": summary} if isinstance(summary, str) else None
