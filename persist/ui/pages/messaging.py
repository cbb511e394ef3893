"""Sessions of people on chat platforms, and what was said in them."""

from typing import Any

from persist.cli.messaging import messaging
from persist.errors import InvalidValue
from persist.ui.views import ROWS, Section, View, Visit

_STATES = {"active": True, "over": False}


def _wanted(visit: Visit) -> dict[str, Any]:
    state = visit.one_of("state", tuple(_STATES))
    return {"platform": visit.text("platform"), "active": None if state is None else _STATES[state]}


def _list(visit: Visit) -> dict[str, Any]:
    found = visit.tx.messaging.sessions.list(**_wanted(visit), **visit.page())
    return {"title": "Messaging", "page": found, "states": tuple(_STATES), "refresh": not visit.text("after")}


def _before(visit: Visit) -> dict[str, int | None]:
    """The message before which one looks. Raises InvalidValue."""
    given = visit.text("before")
    if given is not None and not (given.isascii() and given.isdigit() and len(given) < 19):
        raise InvalidValue("before", "expected the number of a message.")
    return {"before": None if given is None else int(given)}


def _show(visit: Visit) -> dict[str, Any]:
    id, before = visit.values["id"], _before(visit)
    session = visit.tx.messaging.sessions.get(id)
    messages = visit.tx.messaging.messages.history(id, limit=ROWS + 1, **before)
    return {
        "title": f"{session.platform}: {session.channel_id}",
        "session": session,
        "messages": messages[-ROWS:],
        "earlier": messages[1].id if len(messages) > ROWS else None,
        "state": "unknown" if session.active is None else "active" if session.active else "over",
        "refresh": before["before"] is None,
    }


SECTION = Section(
    "Messaging",
    "/messaging",
    views=(
        View(
            "/messaging",
            "messaging.html",
            _list,
            lambda visit: messaging.answer("ls", visit.tx, **_wanted(visit), **visit.page(20)),
        ),
        View(
            "/messaging/{id}",
            "messaging_session.html",
            _show,
            lambda visit: messaging.answer("show", visit.tx, session=visit.values["id"], limit=ROWS, **_before(visit)),
        ),
    ),
)
