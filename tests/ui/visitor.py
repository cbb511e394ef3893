"""A visitor of the pages, without a server and without a browser: what was asked, and what came back."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx
from starlette.types import ASGIApp

ORIGIN = "http://127.0.0.1:8790"


@dataclass(frozen=True)
class Answer:
    """What came back for one request."""

    status: int
    text: str
    headers: httpx.Headers
    body: bytes

    @property
    def json(self) -> Any:
        return httpx.Response(self.status, content=self.body).json()

    @property
    def main(self) -> str:
        """What the page shows, as text without tags, its white space joined."""
        (inside,) = re.findall(r"<main.*?</main>", self.text, re.DOTALL)
        return " ".join(re.sub(r"<[^>]*>", " ", inside).split())


@dataclass(frozen=True)
class Heard:
    """One event of a live stream."""

    event: str
    data: Any
    id: str | None

    @classmethod
    def of(cls, text: str) -> "Heard":
        fields = dict(line.split(": ", 1) for line in text.splitlines() if not line.startswith((":", "retry")))
        return cls(fields["event"], json.loads(fields["data"]), fields.get("id"))


class Visitor:
    """Asks an application as a browser does, and keeps its cookies. `mounted`: the prefix that the host gave it."""

    def __init__(self, app: ASGIApp, mounted: str = "", runner: asyncio.Runner | None = None) -> None:
        self._runner = runner or asyncio.Runner()
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=True, root_path=mounted)
        self._client = httpx.AsyncClient(transport=transport, base_url=ORIGIN, headers={"Accept": "text/html"})
        self._mounted, self._app = mounted, app

    def get(self, path: str, headers: Mapping[str, str] | None = None, **query: Any) -> Answer:
        """Open an address of the application."""
        return self._ask("GET", path, headers, params=query or None)

    def json(self, path: str, **query: Any) -> Any:
        """What an address gives as JSON."""
        answer = self.get(path, format="json", **query)
        assert answer.status == 200, answer.text
        return answer.json

    def json_error(self, path: str, **query: Any) -> Any:
        """The error that an address gives as JSON instead."""
        answer = self.get(path, format="json", **query)
        assert answer.status >= 400, answer.text
        return answer.json["error"]

    def post(self, path: str, headers: Mapping[str, str] | None = None, *, signed: bool = True, **fields: str) -> Answer:
        """Send a form, with the token that the last page had if it is `signed`; follows no redirect."""
        token = {"token": self._client.cookies.get("persist_form") or ""} if signed else {}
        sent = {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin", **(headers or {})}
        return self._ask("POST", path, sent, data={**token, **fields})

    def listen(self, path: str, count: int = 1, meanwhile: Callable[[], object] = lambda: None, **query: Any) -> list[Heard]:
        """The first `count` events that a live stream tells; `meanwhile` is done once it has begun."""
        return self._runner.run(self._listen(path, count, meanwhile, query))

    async def _listen(self, path: str, count: int, meanwhile: Callable[[], object], query: Mapping[str, Any]) -> list[Heard]:
        heard, begun, enough, left = list[Heard](), asyncio.Event(), asyncio.Event(), b""

        async def send(message: Any) -> None:
            nonlocal left
            assert message.get("status", 200) == 200
            *whole, left = (left + message.get("body", b"")).split(b"\n\n")
            heard.extend(Heard.of(text.decode()) for text in whole if b"data: " in text)
            begun.set()
            if len(heard) >= count:
                enough.set()

        async def receive() -> Any:
            await enough.wait()
            return {"type": "http.disconnect"}

        sent = {"type": "http", "method": "GET", "path": self._mounted + path, "root_path": self._mounted, "scheme": "http"}
        scope = {**sent, "query_string": urlencode(query).encode(), "headers": [(b"host", b"127.0.0.1:8790")]}
        async with asyncio.timeout(30):
            following = asyncio.ensure_future(self._app(scope, receive, send))
            await begun.wait()
            await asyncio.to_thread(meanwhile)
            await following
        return heard

    def close(self) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()

    def _ask(self, method: str, path: str, headers: Mapping[str, str] | None, **rest: Any) -> Answer:
        request = self._client.request(method, self._mounted + path, headers=dict(headers or {}), **rest)
        found = self._runner.run(request)
        return Answer(found.status_code, found.text, found.headers, found.content)
