"""A server of MCP behind a real HTTP server: two clients that both begin at request 1 are each sent their own messages again."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
from starlette.applications import Starlette
from starlette.routing import Mount

from persist import AsyncStore, Store
from persist.integrations.mcp import PersistEventStore, PersistSessionManager
from tests.integrations.mcp.scenes import VERSION, Answer, Client, server
from tests.integrations.mcp.test_sessions import two_clients
from tests.integrations.serving import served


class OverHttp(Client):
    """A client that asks over HTTP; `app` is the address of the server."""

    async def _request(
        self,
        method: str,
        body: bytes,
        headers: dict[str, str],
        until: Callable[[Answer], bool] = lambda answer: False,
        patience: float = 60.0,
    ) -> Answer:
        sent = {"accept": "application/json, text/event-stream", **headers}
        if self.session is not None:
            sent |= {"mcp-session-id": self.session, "mcp-protocol-version": VERSION}
        answer = Answer()
        with anyio.fail_after(60):  # every answer is as wanted, or the server ends it
            async with (
                httpx.AsyncClient(timeout=60) as http,
                http.stream(method, f"{self.app}/mcp/", content=body, headers=sent) as response,
            ):
                answer.status, answer.headers = response.status_code, dict(response.headers)
                async for text in response.aiter_text():
                    answer.text += text
                    if until(answer):
                        break
        return answer


def test_two_clients_of_one_server(store: Store | AsyncStore, do: Callable[[Awaitable[Any]], Any]) -> None:
    manager = PersistSessionManager(server()._lowlevel_server, PersistEventStore(store))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    app = Starlette(routes=[Mount("/mcp", manager.handle_request)], lifespan=lifespan)
    with served(app, lifespan="on") as address:
        do(two_clients(address, OverHttp))
