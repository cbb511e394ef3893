"""A visitor of the pages, without a server and without a browser: what was asked, and what came back."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


class Visitor:
    """Asks an application as a browser does, and keeps its cookies. `mounted`: the prefix that the host gave it."""

    def __init__(self, app: ASGIApp, mounted: str = "") -> None:
        self._runner = asyncio.Runner()
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=True, root_path=mounted)
        self._client = httpx.AsyncClient(transport=transport, base_url=ORIGIN, headers={"Accept": "text/html"})
        self._mounted = mounted

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

    def close(self) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()

    def _ask(self, method: str, path: str, headers: Mapping[str, str] | None, **rest: Any) -> Answer:
        request = self._client.request(method, self._mounted + path, headers=dict(headers or {}), **rest)
        found = self._runner.run(request)
        return Answer(found.status_code, found.text, found.headers, found.content)
