"""Compaction: a marker message carries the summary; nothing is hidden, but the model sees less."""

from typing import Any

from persist.chat.posting import Posting, check_parts, post
from persist.chat.schemas import ChatMessage, Role, SummaryAs, UIMessage
from persist.chat.transcript import read_messages
from persist.chat.usage import COMPACTION, newest_marker, since_boundary
from persist.db.work import Work
from persist.errors import InvalidValue, NotFound


def compact(
    work: Work, session_id: str, *, summary: str, tail_start_id: str | None, auto: bool, summary_tokens: int
) -> ChatMessage:
    """The marker, stamped now so that it sorts last. NotFound for a tail start that the session does not show."""
    work.body("summary", summary)
    if type(auto) is not bool:
        raise InvalidValue("auto", "expected True or False.")
    if type(summary_tokens) is not int or not 0 <= summary_tokens < 2**53:
        raise InvalidValue("summary_tokens", "expected a whole number of tokens, 0 or more.")
    if tail_start_id is not None:
        work.label("tail_start_id", tail_start_id)
        if all(message["id"] != tail_start_id for message in read_messages(work, session_id)):
            raise NotFound("message", tail_start_id)
    data = {"summary": summary, "tail_start_id": tail_start_id, "auto": auto, "summary_tokens": summary_tokens}
    parts = check_parts(work, [{"type": COMPACTION, "data": data}])
    usage = {"input": summary_tokens, "output": 0, "reasoning": 0, "cache_read": 0, "cache_write": 0}
    return post(work, Posting(session_id, Role.ASSISTANT, parts, {"usage": usage}), id=None)


def model_view(work: Work, session_id: str, summary_as: SummaryAs) -> list[UIMessage]:
    """[summary, tail start … marker), and everything after the newest visible marker; all of it without one."""
    shown = read_messages(work, session_id)
    marker = newest_marker(work, session_id)
    if marker is None:
        return shown
    view = since_boundary(shown, *marker)
    return [_as_text(message) for message in view] if summary_as == SummaryAs.TEXT else view


def _as_text(message: UIMessage) -> UIMessage:
    """A marker as a user message, which many providers want as the first one; if it says more, as the assistant's.

    An earlier one may be in the tail, or start it: then nothing else tells the model what it sums up. Others stay as they are.
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
