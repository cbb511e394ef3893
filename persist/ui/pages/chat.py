"""Chats: the list, and a transcript as a person reads it, live while it is written, with its cost and its forks."""

from dataclasses import dataclass, field
from typing import Any

from persist.chat.schemas import ChatSession, TurnState
from persist.chat.storage.turns import read_turn
from persist.cli.nouns import Answer
from persist.cli.sessions import chat_as_json, listed_chats, running_chats
from persist.db.transactions.verb_frame import Verb
from persist.errors import Conflict, InvalidValue, NotFound
from persist.store.transaction import Transaction, work_of
from persist.ui.following import mark_of, told_of_chat
from persist.ui.pictures import PICTURES, file_of, of_data_url, refuse_large
from persist.ui.transcripts import Room, ShownMessage, Steps, as_markdown, message_shown
from persist.ui.views import TEXT_AT_FIRST, Action, Change, Download, File, Section, Stream, View, Visit

MESSAGES = 100
"""How many messages a page of a transcript has, from the newest back."""
_CALLS = 500
"""A transcript says what the newest so many steps took."""
_WAITING = 20
_ABOVE, _FORKS = 20, 50
"""How many levels above a chat, and how many forks in all, its tree has."""
_ARCHIVED = ("too", "alone")


# -- the list


def _wanted(visit: Visit) -> dict[str, Any]:
    archived = visit.one_of("archived", _ARCHIVED)
    named = {name: visit.text(name) for name in ("agent", "owner", "workspace_root", "search")}
    return {**named, "include_archived": archived == "too", "archived": True if archived == "alone" else None}


def _list(visit: Visit) -> dict[str, Any]:
    found = visit.tx.chat.sessions.list(**_wanted(visit), **visit.page())
    return {
        "title": "Chats",
        "page": found,
        "running": running_chats(visit.tx, "ui", *found.items),
        "archived": _ARCHIVED,
        "refresh": not visit.text("after"),
    }


# -- one chat


def _show(visit: Visit) -> dict[str, Any]:
    tx, id, before = visit.tx, visit.values["id"], visit.text("before")
    session = tx.chat.sessions.get(id)
    hidden = visit.flag("hidden")
    turn = tx.chat.sessions.turn(id)
    which: dict[str, Any] = {"include_hidden": hidden, "before": before}
    rows = tx.chat.messages.list_rows(id, limit=MESSAGES + 1, **which)
    listed = tx.chat.messages.list(id, limit=MESSAGES, files="reference", **which)
    steps = Steps(tx.usage.calls.list(session_id=id, limit=_CALLS).items)
    by_id = {row.id: row for row in rows}
    begun = session.created_at if session.parent_id is not None else None
    writes = None if turn is None else turn.message_id
    broken = _broken(tx, id) if turn is None else None
    room = Room()
    messages = [
        message_shown(one, by_id.get(one["id"]), steps, room, live=one["id"] == writes, before=begun) for one in reversed(listed)
    ][::-1]
    queued = [] if before else tx.chat.messages.queued(id)
    return {
        "title": _title(session),
        "session": session,
        "turn": turn,
        "messages": messages,
        "forked_at": next((place for place, one in enumerate(messages) if not one.shared), None) if begun else None,
        "older": messages[0].id if len(rows) > MESSAGES and messages else None,
        "hidden": hidden,
        "broken": broken,
        "queued": len(queued),
        "waiting": [_waiting(tx, row.id, row) for row in queued[:_WAITING]] if hidden else [],
        "family": _family(tx, session),
        "live": None if before else {"mark": mark_of(tx, id), "after": _live(tx, id, writes, messages)},
        "asks": any(part.get("state") == "approval-requested" for one in messages for part in one.parts),
        "pictures": PICTURES,
    }


def _title(session: ChatSession) -> str:
    title = session.metadata.get("title")
    return title if isinstance(title, str) and title.strip() else f"Chat with {session.agent}"


def _broken(tx: Transaction, id: str) -> str | None:
    """How the latest answer ended if it has no end of its own: with an error, or without its writer."""
    with Verb(work_of(tx), "ui", writes=False):
        turn = read_turn(work_of(tx), id)
    if turn is None:
        return None
    return "ended with an error" if turn.state == TurnState.ERROR else "its writer is gone"


def _waiting(tx: Transaction, id: str, row: Any) -> ShownMessage:
    return message_shown(tx.chat.messages.get(id, files="reference"), row, Steps(()), Room())


def _live(tx: Transaction, id: str, writes: str | None, messages: list[ShownMessage]) -> str:
    """The place from which the page is told what comes; empty where no message that is shown grows."""
    if writes is None or all(one.id != writes for one in messages):
        return ""
    try:
        return tx.chat.messages.cursor(id, writes)
    except NotFound:  # hidden, and shown on request
        return ""


@dataclass(slots=True)
class _Fork:
    """A chat in the tree of those that were forked from each other."""

    session: ChatSession
    forks: "list[_Fork]" = field(default_factory=list)
    more: bool = False


def _family(tx: Transaction, session: ChatSession) -> _Fork | None:
    """The tree of forks that the chat is in, None for one without; a part of a large one."""
    if session.parent_id is None and not tx.chat.sessions.children(session.id, limit=1).items:
        return None
    root = session
    for _ in range(_ABOVE):
        if root.parent_id is None:
            break
        try:
            root = tx.chat.sessions.get(root.parent_id)
        except NotFound:  # deleted: what was forked from it stays
            break
    tree = _Fork(root)
    found, known = [tree], {root.id}
    for one in found:  # the list grows, level by level
        left = _FORKS - len(found)
        page = tx.chat.sessions.children(one.session.id, limit=max(1, left))
        one.forks = [_Fork(child) for child in page.items[: max(0, left)] if child.id not in known]
        one.more = bool(page.cursor) or len(one.forks) < len(page.items)
        known |= {fork.session.id for fork in one.forks}
        found += one.forks
    return tree


# -- one message


def _message(visit: Visit) -> dict[str, Any]:
    tx, id = visit.tx, visit.values["id"]
    session, message = tx.chat.sessions.get(id), _own(visit, "reference")
    turn = tx.chat.sessions.turn(id)
    digest = (message.get("metadata") or {}).get("system_prompt_digest")
    steps = Steps(tx.usage.calls.list(session_id=id, limit=_CALLS).items)
    live = turn is not None and turn.message_id == message["id"]
    rows = tx.chat.messages.list_rows(id, include_hidden=True, limit=MESSAGES)  # no verb gives a single one
    row = next((one for one in rows if one.id == message["id"]), None)
    return {
        "title": f"Message of {_title(session)}",
        "session": session,
        "message": message_shown(message, row, steps, Room(None if visit.flag("whole") else TEXT_AT_FIRST), live=live),
        "prompt": _prompt(tx, digest) if isinstance(digest, str) else None,
        "pictures": PICTURES,
    }


def _own(visit: Visit, files: Any) -> Any:
    """The message that is asked for, of the chat that is asked for. Raises NotFound."""
    id, wanted = visit.values["id"], visit.values["message"]
    visit.tx.chat.messages.list_rows(id, include_hidden=True, limit=1, before=wanted)  # refuses one of another chat
    return visit.tx.chat.messages.get(wanted, files=files)


def _prompt(tx: Transaction, digest: str) -> str | None:
    try:
        return tx.chat.prompts.get(digest)
    except (NotFound, InvalidValue):
        return None


# -- files


def _blob(visit: Visit) -> File:
    digest = visit.values["digest"]
    blob = visit.tx.chat.messages.file(visit.values["id"], digest)
    refuse_large(blob.size, "file")
    return file_of(visit.tx.blobs.read(digest), digest[:12])


def _inline(visit: Visit) -> File:
    message, place = _own(visit, "reference"), visit.values["place"]
    parts = message["parts"]
    part = parts[int(place)] if place.isascii() and place.isdigit() and int(place[:9]) < len(parts) else {}
    url, name = part.get("url"), part.get("filename")
    if not isinstance(url, str) or url[:5].lower() != "data:":
        raise NotFound("file", f"{message['id']}/{place}")
    return file_of(of_data_url(url), name if isinstance(name, str) else f"part-{place}")


def _as_json(visit: Visit) -> File:
    text = chat_as_json(visit.tx, visit.values["id"], hidden=visit.flag("hidden"))
    return File(text.encode(errors="surrogatepass"), "application/json", f"{visit.values['id']}.json")


def _as_markdown(visit: Visit) -> File:
    id = visit.values["id"]
    session = visit.tx.chat.sessions.get(id)
    messages = visit.tx.chat.messages.list(id, include_hidden=visit.flag("hidden"), files="reference")
    text = as_markdown(_title(session), messages)
    return File(text.encode(errors="replace"), "text/markdown; charset=utf-8", f"{id}.md")


# -- changes


def _stop(change: Change) -> str:
    id = change.values["id"]
    if not change.tx.chat.sessions.request_stop(id):
        raise Conflict(f"No answer is being written in the chat {id}.")
    return "Asked the answer to stop."


def _cancel(change: Change) -> str:
    id = change.values["message"]
    if not change.tx.chat.messages.cancel_queued(id):
        raise Conflict(f"The message {id} waits no more.")
    return f"Took back the message {id}, which waited."


SECTION = Section(
    "Chat",
    "/chat",
    views=(
        View("/chat", "chats.html", _list, lambda visit: listed_chats(visit.tx, **_wanted(visit), **visit.page(20))),
        View(
            "/chat/{id}",
            "chat.html",
            _show,
            lambda visit: Answer(chat_as_json(visit.tx, visit.values["id"], hidden=visit.flag("hidden"))),
        ),
        View("/chat/{id}/messages/{message}", "chat_message.html", _message, lambda visit: Answer(_own(visit, "data"))),
    ),
    actions=(Action("/chat/{id}/stop", _stop), Action("/chat/{id}/messages/{message}/cancel", _cancel)),
    streams=(Stream("/chat/{id}/live", told_of_chat, lambda visit: visit.tx.chat.sessions.get(visit.values["id"])),),
    downloads=(
        Download("/chat/{id}/transcript.json", _as_json),
        Download("/chat/{id}/transcript.md", _as_markdown),
        Download("/chat/{id}/files/{digest}", _blob),
        Download("/chat/{id}/messages/{message}/files/{place}", _inline),
    ),
)
