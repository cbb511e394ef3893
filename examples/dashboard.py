"""What agents do, live in a browser: the log of events as Server-Sent Events, from any process that writes to the database.

    pip install . uvicorn                                               # in a clone of persist
    persist events on --url sqlite:///state.db
    python examples/dashboard.py --url sqlite:///state.db --port 8000   # then open http://127.0.0.1:8000/
    persist record --url sqlite:///state.db --session new --agent build < examples/answer.sse   # elsewhere

A browser that loses the connection comes back with the `Last-Event-ID` of what it saw last, and goes on from there. The
application is plain ASGI: `application(url)` runs in any server, and below any framework that can mount one.
"""

import argparse
import asyncio
import json
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

try:
    import uvicorn

    from persist import AsyncStore
    from persist.events.schemas import ALL, Event
except ImportError as missing:
    raise SystemExit(f"{missing}. In a clone of persist: pip install . uvicorn") from None

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

HEARTBEAT = 15.0
"""Seconds between two comments, so that proxies do not think the connection dead, and we notice when it is."""

PAGE = """<!doctype html>
<meta charset="utf-8"><title>events</title>
<style>
  body { font: 14px/1.5 monospace; margin: 2em }
  td { padding-right: 1.5em; vertical-align: top; white-space: pre-wrap }
</style>
<h1>events</h1><p id="state">connecting</p><table id="events"></table>
<script>
  const source = new EventSource("/events" + location.search), table = document.getElementById("events");
  const state = text => { document.getElementById("state").textContent = text };
  source.onopen = () => state("live");
  source.onerror = () => state("connection lost, trying again");
  source.onmessage = message => {
    const event = JSON.parse(message.data), row = table.insertRow(0);
    const changes = event.data && event.data.changes || [];
    const text = changes.map(change => change.row && change.row.delta || "").join("");
    for (const cell of [message.lastEventId, event.at.slice(11, 19), event.stream_id, event.type, text])
      row.insertCell().textContent = cell;
    if (table.rows.length > 500) table.deleteRow(-1);
  };
</script>
"""


def application(url: str, *, schema: str | None = None) -> Callable[[Message, Receive, Send], Awaitable[None]]:
    """`GET /` is a page, `GET /events?stream=…` its events; without a stream, everything."""
    opened: list[AsyncStore] = []

    async def lifespan(receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] == "lifespan.startup":
            try:
                opened.append(await AsyncStore.open(url, schema=schema, read_only=True))
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
        assert message["type"] == "lifespan.shutdown"
        await opened.pop().close()
        await send({"type": "lifespan.shutdown.complete"})

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
        elif scope["type"] != "http":
            raise NotImplementedError(f"{scope['type']} is not served here")
        elif scope["method"] != "GET" or scope["path"] not in ("/", "/events"):
            await answer(send, 404, "text/plain; charset=utf-8", "There is / and /events.\n")
        elif scope["path"] == "/":
            await answer(send, 200, "text/html; charset=utf-8", PAGE)
        else:
            stream = parse_qs(scope["query_string"].decode("latin-1")).get("stream", [ALL])[0]
            last = dict(scope["headers"]).get(b"last-event-id", b"0").decode("latin-1")
            if not last.isascii() or not last.isdigit() or len(last) > 18:
                await answer(send, 400, "text/plain; charset=utf-8", "Last-Event-ID is no number of an event.\n")
            else:
                await follow(opened[0], stream, int(last), receive, send)

    return app


async def answer(send: Send, status: int, kind: str, text: str) -> None:
    """A whole response."""
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind.encode())]})
    await send({"type": "http.response.body", "body": text.encode()})


async def follow(store: AsyncStore, stream: str, after: int, receive: Receive, send: Send) -> None:
    """Events as they come, until the client leaves or the server stops."""
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def say(text: str) -> None:
        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

    async def events() -> None:
        async for event in store.watch(stream, after=after):
            await say(frame(event, event.position if stream == ALL else event.seq))

    async def heartbeats() -> None:
        while True:
            await say(": alive\n\n")
            await asyncio.sleep(HEARTBEAT)

    async def departure() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.create_task(each()) for each in (events, heartbeats, departure)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def frame(event: Event, number: int) -> str:
    """One event of a stream of Server-Sent Events. JSON in ASCII has no line breaks, which would end it early."""
    data = {"stream_id": event.stream_id, "seq": event.seq, "type": event.type, "at": event.at.isoformat(), "data": event.data}
    return f"id: {number}\ndata: {json.dumps(data)}\n\n"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--url", required=True, help="sqlite:///FILE or postgresql://…")
    options.add_argument("--schema", help="the schema on Postgres")
    options.add_argument("--port", type=int, default=8000, help="0 is any that is free")
    given = options.parse_args()
    with socket.create_server(("127.0.0.1", given.port)) as listening:  # this machine alone: there is no login
        print(f"http://127.0.0.1:{listening.getsockname()[1]}/", flush=True)
        app = application(given.url, schema=given.schema)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        server.run(sockets=[listening])
    return 0


if __name__ == "__main__":
    sys.exit(main())
