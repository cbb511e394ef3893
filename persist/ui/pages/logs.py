"""Session logs: files that agents write line by line. The list, and one log as a conversation that grows."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any, cast

from persist.cli.logs import find_logs, listed
from persist.cli.nouns import Answer
from persist.db.files import typed
from persist.errors import InvalidValue, NotFound, PayloadTooLarge
from persist.sessionlog import LogMessage, Scope, SessionLogInfo, find_session_log, iter_session_log, tail_session_log
from persist.ui.rendering import page
from persist.ui.said import Said, said_in
from persist.ui.views import MOST_ROWS, Listening, Section, Stream, Told, View, Visit

_FEW = 200
"""How many logs a list has at most that is looked at again and again."""
_LINES = 4
"""How many lines a page looks through first, for each that it shows."""
_CHUNK = 1 << 20
_POLL = 0.4
"""Seconds between two looks at a file that is followed."""


def _found(visit: Visit) -> list[SessionLogInfo]:
    scope = visit.one_of("scope", Scope) or Scope.ALL.value
    session, home = visit.text("session"), visit.site.logs
    found = [] if home is None else find_logs(home, visit.text("project"), scope)
    return [info for info in found if session is None or session in info.session_id]


def _place(info: SessionLogInfo) -> str:
    return f"{info.modified_at.astimezone(UTC).isoformat()} {info.project_slug} {info.session_id}"


def _list(visit: Visit) -> dict[str, Any]:
    found, wanted = _found(visit), visit.page()
    left = [info for info in found if wanted["after"] is None or _place(info) < wanted["after"]]
    shown = left[: wanted["limit"]]
    return {
        "title": "Session logs",
        "home": visit.site.logs,
        "logs": shown,
        "count": len(found),
        "cursor": _place(shown[-1]) if len(left) > len(shown) else None,
        "scopes": [scope.value for scope in Scope],
        "refresh": bool(found) and len(found) <= _FEW and not wanted["after"],
    }


# -- one log


def _log(home: Path | None, values: Any) -> SessionLogInfo:
    """The log of an address. Raises NotFound, also for names that no log can have."""
    slug, session = values["slug"], values["session"]
    try:
        if home is not None:
            return find_session_log(home, session, project_slug=slug)
    except (InvalidValue, PayloadTooLarge):
        pass
    raise NotFound("session log", f"{slug}/{session}")


Group = tuple[int, list[Said]]
"""The number of a line, and what it says."""


def _groups(path: Path, since: int, whole: bool) -> Iterator[Group]:
    """What the lines of a file say that are there by now."""
    with closing(cast(Any, tail_session_log(path, since_index=since, stop=lambda: True))) as batches:
        for batch in batches:
            yield from filter(lambda group: group[1], (_group(line, whole) for line in batch))


def _group(line: LogMessage, whole: bool) -> Group:
    return line.index, said_in(line.msg, line.index, whole=whole)


def _before(path: Path, before: int, rows: int) -> list[Group]:
    """The last groups of the lines before one. Only as many lines are read as JSON as that takes, unless few say anything."""
    found: deque[Group] = deque(maxlen=rows + 1)
    for since in (max(0, before - rows * _LINES), 0):
        found.clear()
        with closing(cast(Any, _groups(path, since, False))) as groups:
            for group in groups:
                if group[0] >= before:
                    break
                found.append(group)
        if not since or len(found) > rows:
            break
    return list(found)


def _count(path: Path) -> int:
    """How many lines a file has by now."""
    try:
        with path.open("rb") as file:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(_CHUNK), b""))
    except OSError as error:
        raise typed(error, path, "session log") from error


def _show(visit: Visit) -> dict[str, Any]:
    info, rows = _log(visit.site.logs, visit.values), visit.number("limit", MOST_ROWS, MOST_ROWS)
    lines = _count(info.path)
    if visit.text("from"):
        first = visit.number("from", 1, 2**62) - 1
        found = list(islice(_groups(info.path, first, visit.flag("whole")), rows + 1))
        later, earlier, shown = len(found) > rows, first > 0, found[:rows]
    else:
        before = visit.number("before", lines + 1, 2**62)
        found = _before(info.path, min(before - 1, lines), rows)
        later, earlier, shown = before <= lines, len(found) > rows, found[-rows:]
    return {
        "title": info.session_id,
        "log": info,
        "lines": lines,
        "messages": [said for _, several in shown for said in several],
        "before": shown[0][0] + 1 if shown and earlier else None,
        "next": shown[-1][0] + 2 if shown and later else None,
        "live": None if later else lines,
        "address": _address(visit.values),
    }


def _address(values: Any) -> tuple[str, str]:
    return values["slug"], values["session"]


def _show_json(visit: Visit) -> Answer:
    """The messages, as `persist logs show --json` prints each, and where the next ones begin."""
    info, rows = _log(visit.site.logs, visit.values), visit.number("limit", MOST_ROWS, MOST_ROWS)
    first = visit.number("after", 0, 2**62) if visit.text("after") not in (None, "0") else 0
    found = list(islice(iter_session_log(info.path), first, first + rows + 1))
    items = [{"index": one.index, "msg": one.msg} for one in found[:rows]]
    return Answer({"items": items, "cursor": str(first + rows) if len(found) > rows else None})


# -- live


async def _tells(listening: Listening) -> AsyncIterator[Told]:
    """Rows of the lines that are appended; an event's id is the number of the line behind it."""
    path = _log(listening.site.logs, listening.values).path
    last, stop = listening.last_id or "", Event()
    since = int(last[:18]) if last.isascii() and last.isdigit() else 0
    lines = tail_session_log(path, since_index=since, poll=_POLL, stop=stop)
    # a thread of its own: it waits most of the time, and would keep pages from the threads that they share
    thread = ThreadPoolExecutor(1, thread_name_prefix="persist-ui-log")
    try:
        while (batch := await asyncio.get_running_loop().run_in_executor(thread, next, lines, None)) is not None:
            said = [one for line in batch for one in _group(line, False)[1]]
            if said:
                shown = {"messages": said[-MOST_ROWS:], "address": _address(listening.values)}
                yield Told("rows", page("said.html", listening.root, datetime.now(UTC), shown), str(batch[-1].index + 1))
    finally:
        stop.set()
        thread.submit(cast(Any, lines).close)
        thread.shutdown(wait=False)


SECTION = Section(
    "Logs",
    "/logs",
    views=(
        View("/logs", "logs.html", _list, lambda visit: listed(_found(visit), visit.page(20)["limit"])),
        View("/logs/{slug}/{session}", "log.html", _show, _show_json),
    ),
    streams=(Stream("/logs/{slug}/{session}/live", _tells, lambda visit: _log(visit.site.logs, visit.values)),),
)
