"""The log of events: all of it, newest first and as it grows, one stream from its beginning, one event, and the streams."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from persist.cli.events import CONSUMERS, STREAMS, event_fields, event_summary
from persist.cli.nouns import Answer
from persist.db.transactions.verb_frame import Verb
from persist.errors import NotFound
from persist.events.repository import latest_streams
from persist.events.schemas import ALL, Event
from persist.events.switching import is_on
from persist.events.watching import Watcher, last_number, watch_async
from persist.store.store import Store
from persist.store.transaction import Transaction, work_of
from persist.ui.rendering import page
from persist.ui.views import MOST_ROWS, Listening, Section, Stream, Told, View, Visit

_AT_ONCE = 1_000
"""How many events are read in one go where most of them may be left out."""
_AT_FIRST = 200
"""How many before that: often enough of these are wanted."""
_READS = 5
"""How often a page reads on before it says that the next one has to."""
_SHOWN_CHANGES = 20
_PAUSE = 0.15
"""Seconds in which a viewer's events are gathered to be told at once."""
_WAITING = 2_000
"""How many events wait for one viewer, who is sent away with more: coming back he goes on where he was."""
_PAGES = {
    "agent_task": "/frameworks/agent_tasks/{}",
    "app_session": "/frameworks/app_sessions/{}",
    "conversation": "/conversations/{}",
    "history": "/frameworks/histories/{}",
    "history-run": "/frameworks/histories/{}",
    "program": "/programs/{}",
    "replay": "/frameworks/replay_streams/{}",
    "telemetry": "/telemetry/{}",
    "thread": "/frameworks/checkpoints/{}",
    "transcript": "/frameworks/transcripts/{}",
    "workflow": "/runs/{}",
}
Wanted = Callable[[Event], bool]


def _wanted(query: Callable[[str], str | None]) -> Wanted:
    """Whether an event passes the filters of type and actor, each a name or a pattern such as run.*"""
    kind, actor = query("type"), query("actor")

    def passes(event: Event) -> bool:
        return (kind is None or fnmatchcase(event.type, kind)) and (actor is None or fnmatchcase(event.actor or "", actor))

    return passes


def _last(tx: Transaction, stream: str = ALL) -> int:
    with Verb(work_of(tx), "events", writes=False):
        return last_number(work_of(tx), stream)


def _newest(visit: Visit, rows: int) -> tuple[list[Event], int | None]:
    """Events of all streams, newest first, and the position before which the next page begins."""
    passes, filtered = _wanted(visit.text), bool(visit.text("type") or visit.text("actor"))
    below = visit.number("before", _last(visit.tx) + 1, 2**63 - 1)
    width, found = _AT_FIRST if filtered else rows + 1, list[Event]()
    for _ in range(_READS):
        first = max(0, below - 1 - width)
        part = [one for one in visit.tx.events.read(ALL, after=first, limit=width) if one.position < below]
        found += filter(passes, reversed(part))
        below, width = first + 1, _AT_ONCE
        if len(found) > rows or not first:
            break
    left = found[rows - 1].position if len(found) > rows else below if below > 1 else None
    return found[:rows], left


def _of_stream(visit: Visit, stream: str, rows: int) -> tuple[list[Event], int | None]:
    """Events of a stream from its beginning, or behind `after`, and the number behind which the next page begins."""
    passes, after, found = _wanted(visit.text), _number(visit.text("after")), list[Event]()
    for width in (_AT_FIRST, *[_AT_ONCE] * (_READS - 1)):
        part = visit.tx.events.read(stream, after=after, limit=width)
        for event in part:
            if len(found) == rows:
                return found, after
            after = event.seq
            found += [event] if passes(event) else []
        if len(part) < width:
            return found, None
    return found, after


def _number(text: str | None) -> int:
    """A place in the log, 0 for what is none: the browser repeats what it was told."""
    return int(text[:18]) if text and text.isascii() and text.isdigit() else 0


def _list(visit: Visit) -> dict[str, Any]:
    stream, rows = visit.text("stream"), visit.page()["limit"]
    with Verb(work_of(visit.tx), "events", writes=False):
        on = is_on(work_of(visit.tx))
    now = _last(visit.tx) if on else 0
    events, more = _newest(visit, rows) if stream is None else _of_stream(visit, stream, rows)
    live = on and (not visit.text("before") if stream is None else more is None)
    filters = visit.filters("stream", "type", "actor")
    return {
        "title": "Events" if stream is None else f"Events of {stream}",
        "on": on,
        "stream": stream,
        "page_of": page_of(stream, events[0] if events else None) if stream else None,
        "events": rows_of(events),
        "more": more,
        "live": {**filters, "after": now, "seq": events[-1].seq if stream and events else None} if live else None,
        "filtered": bool(filters["type"] or filters["actor"]),
        "every": stream is None,
    }


def _list_json(visit: Visit) -> Answer:
    stream, rows = visit.text("stream"), visit.page()["limit"]
    events, more = _newest(visit, rows) if stream is None else _of_stream(visit, stream, rows)
    return Answer({"items": [event_fields(event) for event in events], "cursor": more and str(more)})


def rows_of(events: list[Event]) -> list[dict[str, Any]]:
    """What a row says of each event."""
    return [{"event": event, "summary": _summary(event)} for event in events]


def _summary(event: Event) -> str:
    try:
        return event_summary(event)
    except RecursionError:
        return "nested too deeply to be shown"


def page_of(stream: str, event: Event | None = None) -> tuple[str, str] | None:
    """The address of the page that shows what a stream is about, with its id; None where no page does.

    The stream of a chat has the name of its session alone, as any stream of a program's own may: what an event changed tells.
    """
    kind, colon, id = stream.partition(":")
    if colon:
        return (_PAGES[kind], id) if kind in _PAGES and id else None
    found = event.data.get("changes") if event is not None and isinstance(event.data, dict) else None
    tables = [change.get("table") for change in found if isinstance(change, dict)] if isinstance(found, list) else []
    of_a_chat = any(table in ("chat_sessions", "chat_messages", "chat_parts", "chat_turns") for table in tables)
    return ("/chat/{}", stream) if of_a_chat else None


# -- one event, and the streams


def _event(visit: Visit) -> Event:
    given = visit.values["position"]
    place = _number(given)
    found = visit.tx.events.read(ALL, after=place - 1, limit=1) if place else []
    if not found or found[0].position != place:
        raise NotFound("event", given)
    return found[0]


def _show(visit: Visit) -> dict[str, Any]:
    event = _event(visit)
    found = event.data.get("changes") if isinstance(event.data, dict) else None
    changes = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    whole = bool(changes) and isinstance(found, list) and len(changes) == len(found)
    return {
        "title": event.type,
        "event": event,
        "page_of": page_of(event.stream_id, event),
        "changes": changes[:_SHOWN_CHANGES] if whole else None,
        "left": max(0, len(changes) - _SHOWN_CHANGES),
        "continues": isinstance(event.data, dict) and event.data.get("more") is True,
    }


def _streams(visit: Visit) -> dict[str, Any]:
    return {
        "title": "Streams of events",
        "streams": latest_streams(work_of(visit.tx), visit.page()["limit"]),
        "consumers": CONSUMERS.all(visit.tx.events.consumers.list(limit=MOST_ROWS)).json["items"],
    }


def _streams_json(visit: Visit) -> Answer:
    return STREAMS.all(latest_streams(work_of(visit.tx), visit.page(20)["limit"]))


# -- live


class _Audience:
    """The viewers who follow the log in one application: one watcher reads it for all of them."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[Event | None]] = set()
        self._starting = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def seat(self, listening: Listening) -> AsyncIterator["asyncio.Queue[Event | None]"]:
        """A queue that gets every event from now on, and None when the watcher ends, or when too many wait in it."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        async with self._starting:
            if self._watching is None or self._watching.done():
                after = await listening.read(_last)
                self._watching = asyncio.create_task(self._watch(listening.store, after))
            self._queues.add(queue)
        try:
            yield queue
        finally:
            self._queues.discard(queue)
            if not self._queues and self._watching is not None:
                self._watching.cancel()
                self._watching = None

    async def _watch(self, store: Store, after: int) -> None:
        try:
            async for event in watch_async(Watcher(store.runtime, ALL, after, None)):
                for queue in self._queues:
                    if queue.qsize() <= _WAITING:
                        queue.put_nowait(event if queue.qsize() < _WAITING else None)
        finally:
            for queue in self._queues:
                queue.put_nowait(None)


async def _tells(listening: Listening) -> AsyncIterator[Told]:
    """Rows of events behind the last one that the viewer has: what he missed, then what comes."""
    stream, passes = listening.query.get("stream") or ALL, _wanted(lambda name: listening.query.get(name) or None)
    seen, seq = _number(listening.last_id), _number(listening.query.get("seq"))

    def shown(events: list[Event]) -> Told | None:
        """The rows of those that are wanted and new, at most a page full of them."""
        nonlocal seen
        new = [event for event in events if event.position > seen]
        seen = max([seen, *(event.position for event in new)])
        mine = [one for one in new if stream == ALL or (one.stream_id == stream and one.seq > seq)]
        rows = list(filter(passes, mine))[-MOST_ROWS:]
        return Told("rows", _html(listening, rows if stream != ALL else rows[::-1]), str(seen)) if rows else None

    async with listening.shared.setdefault("events", _Audience()).seat(listening) as queue:
        seen = max(seen, await listening.read(_last) - _READS * _AT_ONCE)  # who was away for longer gets the newest
        for _ in range(_READS + 1):
            missed = await listening.read(lambda tx: tx.events.read(ALL, after=seen, limit=_AT_ONCE))
            if told := shown(missed):
                yield told
            if len(missed) < _AT_ONCE:
                break
        while (event := await queue.get()) is not None:
            events = [event]
            await asyncio.sleep(_PAUSE)
            with suppress(asyncio.QueueEmpty):
                while (after := queue.get_nowait()) is not None:
                    events.append(after)
                return
            if told := shown(events):
                yield told


def _html(listening: Listening, events: list[Event]) -> str:
    now = datetime.now(UTC)
    every = not listening.query.get("stream")
    return page("event_rows.html", listening.root, now, {"events": rows_of(events), "every": every})


SECTION = Section(
    "Events",
    "/events",
    views=(
        View("/events", "events.html", _list, _list_json),
        View("/events/streams", "event_streams.html", _streams, _streams_json),
        View("/events/{position}", "event.html", _show, lambda visit: Answer(event_fields(_event(visit)))),
    ),
    streams=(Stream("/events/live", _tells, lambda visit: None),),
)
