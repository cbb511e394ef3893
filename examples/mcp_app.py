"""An MCP server whose client lost its connection, and whose process is killed: the client is still sent what it missed.

    pip install '.[mcp]'                                  # in a clone of persist; elsewhere agent-persist
    python examples/mcp_app.py --crash-after 3            # sends three pages, of which the client gets one, and dies of SIGKILL
    python examples/mcp_app.py                            # sends the two that the client missed, and then the rest
    persist ls replay_streams --url sqlite:///mcp.db      # the sessions of its clients

Server and client are in one process here and speak HTTP without a network. What persist adds are the lines that make `events`
and the session manager.
"""

import argparse
import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

try:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.streamable_http import EventMessage

    from persist import Store
    from persist.integrations.mcp import PersistEventStore, PersistSessionManager
except ImportError as missing:
    raise SystemExit(f"{missing}. In a clone of persist: pip install '.[mcp]'") from None

PAGES = 5
VERSION = "2025-11-25"
crash_after: int | None = None

server = MCPServer("reporter", log_level="ERROR")


@server.tool()
async def report(begin: int, ctx: Context) -> str:
    """Sends the pages of a report, one after the other."""
    for page in range(begin, PAGES + 1):
        await ctx.report_progress(page, PAGES, f"page {page}")
        if page == crash_after:
            await asyncio.sleep(0.2)  # until it is sent
            os.kill(os.getpid(), signal.SIGKILL)
    return "The report is complete."


class Client:
    """Notes the session and the last event that it got, in a file, for when it comes back."""

    def __init__(self, notes: Path, *, loses_connection: bool) -> None:
        self.notes, self.loses_connection, self.session = notes, loses_connection, ""

    def got(self, id: str, message: dict[str, Any]) -> None:
        """An event came."""
        if "params" in message:
            print(message["params"]["message"], flush=True)
        elif "content" in message["result"]:
            print(message["result"]["content"][0]["text"], flush=True)
        self.notes.write_text(f"{self.session} {id}", encoding="utf-8")

    async def post(self, app: Any, message: dict[str, Any]) -> None:
        """Send a message, and read the stream of events that answers it until the connection is lost."""
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if self.session:
            headers |= {"mcp-session-id": self.session, "mcp-protocol-version": VERSION}
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
        scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]
        connected, body = True, iter([json.dumps(message).encode()])

        async def receive() -> dict[str, Any]:
            for part in body:
                return {"type": "http.request", "body": part, "more_body": False}
            await asyncio.Event().wait()  # the client stays
            raise AssertionError

        async def send(sent: Any) -> None:
            nonlocal connected
            if sent["type"] == "http.response.start":
                found = {name.decode(): value.decode() for name, value in sent["headers"]}
                self.session = found.get("mcp-session-id", self.session)
                return
            fields = dict(line.split(": ", 1) for line in sent.get("body", b"").decode().splitlines() if ": " in line)
            if connected and fields.get("id") and fields.get("data"):
                event = json.loads(fields["data"])
                self.got(fields["id"], event)
                connected = not (self.loses_connection and "params" in event)

        await app(scope, receive, send)

    async def ask(self, app: Any, begin: int) -> None:
        """Open a session and ask for the report."""
        who = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "reader", "version": "1"}}
        await self.post(app, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": who})
        await self.post(app, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        call = {"name": "report", "arguments": {"begin": begin}, "_meta": {"progressToken": 2}}
        await self.post(app, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})


async def main() -> None:
    """Send what the client missed, if it was here before, and the rest of the report."""
    global crash_after
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="sqlite:///mcp.db", help="sqlite:///FILE or postgresql://…")
    parser.add_argument("--notes", type=Path, default=Path("mcp-client.txt"), help="where the client notes what it got")
    parser.add_argument("--crash-after", type=int, help="die after this page, of which the client got the first alone")
    options = parser.parse_args()
    crash_after = options.crash_after

    with Store.open(options.url) as store:
        events = PersistEventStore(store)
        client = Client(options.notes, loses_connection=crash_after is not None)
        begin = 1
        if options.notes.exists():
            client.session, last = options.notes.read_text(encoding="utf-8").split()

            async def send(event: EventMessage) -> None:
                nonlocal begin
                message = event.message.model_dump(by_alias=True, exclude_unset=True)
                begin = max(begin, 1 + message.get("params", {}).get("progress", 0))
                client.got(event.event_id or "", message)

            # what a transport does for a GET with Last-Event-ID
            await events.for_session(client.session).replay_events_after(last, send)
            client.session = ""
        manager = PersistSessionManager(server._lowlevel_server, events)
        async with manager.run():
            await client.ask(manager.handle_request, begin)


if __name__ == "__main__":
    asyncio.run(main())
