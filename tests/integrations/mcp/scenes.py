"""An MCP server with one tool, and clients that speak HTTP with it in this process, on whatever event loop runs."""

import json
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.server.mcpserver import Context, MCPServer

VERSION = "2025-11-25"


def server() -> MCPServer:
    """A server whose tool says something while it works, and once more in its answer."""
    server = MCPServer("talker")

    @server.tool()
    async def talk(who: str, times: int, ctx: Context) -> str:
        for number in range(times):
            await ctx.report_progress(number, times, f"{who} {number}")
        return f"{who} is done"

    return server


@dataclass
class Answer:
    """An answer of the server: its status, its headers and the events that it streamed, as pairs of an id and a message."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""

    @property
    def events(self) -> list[tuple[str, Any]]:
        found = []
        for block in self.text.replace("\r\n", "\n").split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
            if "id" in fields:
                found.append((fields["id"], json.loads(fields["data"]) if fields.get("data") else None))
        return found

    @property
    def said(self) -> list[str]:
        """What the tool said in these events."""
        return [_words(message) for _, message in self.events if message is not None]


def _words(message: dict[str, Any]) -> str:
    if "params" in message:
        return str(message["params"]["message"])
    return str(message["result"]["content"][0]["text"]) if "content" in message["result"] else "initialized"


class Client:
    """A client of an ASGI application. Every client numbers its requests alike."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.session: str | None = None

    async def open(self) -> Answer:
        """Initialize the session."""
        params = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        answer = await self.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        assert answer.status == 200, answer
        self.session = answer.headers["mcp-session-id"]
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    async def talk(self, who: str, times: int = 2, *, id: int = 2) -> Answer:
        """Call the tool."""
        params = {"name": "talk", "arguments": {"who": who, "times": times}, "_meta": {"progressToken": id}}
        return await self.post({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})

    async def resume(self, last_event_id: str, until: Callable[[Answer], bool] = lambda answer: False) -> Answer:
        """Ask for what followed an event; hang up when the answer is as wanted, or nothing came for a moment."""
        return await self._request("GET", b"", {"last-event-id": last_event_id}, until, patience=2.0)

    async def post(self, message: dict[str, Any]) -> Answer:
        return await self._request("POST", json.dumps(message).encode(), {"content-type": "application/json"})

    async def close(self) -> Answer:
        return await self._request("DELETE", b"", {})

    async def _request(
        self,
        method: str,
        body: bytes,
        headers: dict[str, str],
        until: Callable[[Answer], bool] = lambda answer: False,
        patience: float = 60.0,
    ) -> Answer:
        sent = {"accept": "application/json, text/event-stream", "host": "127.0.0.1:80", **headers}
        if self.session is not None:
            sent |= {"mcp-session-id": self.session, "mcp-protocol-version": VERSION}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        answer, came, asked = Answer(), anyio.Event(), False
        hung_up = anyio.Event()

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": body, "more_body": False}
            await hung_up.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            nonlocal came
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                answer.text += message.get("body", b"").decode()
            came.set()
            came = anyio.Event()

        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                while not until(answer):
                    with anyio.move_on_after(patience) as waited:
                        await came.wait()
                    if waited.cancelled_caught:
                        break
                hung_up.set()

            tasks.start_soon(watch)
            await self.app(scope, receive, send)
            tasks.cancel_scope.cancel()
        return answer


@asynccontextmanager
async def running(manager: Any) -> AsyncIterator[Any]:
    """The ASGI application of a session manager, while it runs."""
    async with manager.run():
        yield manager.handle_request
