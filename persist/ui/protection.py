"""Who may look, and what a change must show: the headers of answers, the host's judgement, a form's origin and its token."""

import hmac
import inspect
import secrets
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from persist.errors import NotPermitted

Authorize = Callable[[Request], "str | Awaitable[str | None] | None"]
"""The host's judgement of a request: the actor, or None for one who may not look."""

FORM_COOKIE = "persist_form"
TOKEN_COOKIE = "persist_token"
SAID_COOKIE = "persist_said"
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class WithHeaders:
    """Adds the headers to every answer that does not say something else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


async def actor_of(request: Request, authorize: Authorize | None) -> str | None:
    """Who acts, as the host says; None without a host's judgement. Raises NotPermitted for one who may not look."""
    if authorize is None:
        return None
    found = authorize(request)
    actor = await found if inspect.isawaitable(found) else found
    if actor is None:
        raise NotPermitted("this application does not let you look at its store.")
    return actor


def form_token(request: Request) -> tuple[str, bool]:
    """The token that a form of this visitor carries, and whether it is new: a cookie then has to take it along."""
    known = request.cookies.get(FORM_COOKIE, "")
    return (known, False) if len(known) >= 40 else (secrets.token_urlsafe(32), True)


def set_cookie(response: Response, request: Request, name: str, value: str, max_age: int | None = None) -> None:
    """A cookie that no script reads and no other site sends."""
    path = request.scope.get("root_path", "") or "/"
    secure = request.url.scheme == "https"
    response.set_cookie(name, value, max_age=max_age, path=path, secure=secure, httponly=True, samesite="strict")


def check_origin(request: Request, form: Mapping[str, str]) -> None:
    """Raise NotPermitted for a form that a page of another origin sent, or that no page of this application holds.

    Under `no-referrer` browsers may say `Origin: null` of a page of the same origin: it is then judged by `Sec-Fetch-Site`.
    """
    headers = request.headers
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin not in (None, "null"):
        foreign = urlsplit(origin).netloc != headers.get("host") or urlsplit(origin).scheme != request.url.scheme
    else:
        foreign = site != "same-origin" if origin == "null" or site is not None else False
    if foreign:
        raise NotPermitted("the form was sent from a page of another site.")
    token, known = form.get("token", ""), request.cookies.get(FORM_COOKIE, "")
    if len(known) < 40 or not hmac.compare_digest(token.encode(), known.encode()):
        raise NotPermitted("the form is too old: load the page again, and send it once more.")


class Guarded:
    """An application that is served by itself: it answers its own hosts alone, and with a token those who know it.

    A visitor with `?token=` in the address gets a cookie, and the address without it. `hosts`: names without ports; None: any.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None, token: str | None = None) -> None:
        self._app, self._hosts, self._token = app, hosts, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        host = Headers(scope=scope).get("host", "")
        if self._hosts is not None and urlsplit(f"//{host}").hostname not in self._hosts:
            return PlainTextResponse("This server is known by another name.\n", 421)
        if self._token is None:
            return None
        request = Request(scope)
        given = request.query_params.get("token")
        if given is not None and self._is_token(given):
            answer = RedirectResponse(str(request.url.remove_query_params("token")), 303)
            set_cookie(answer, request, TOKEN_COOKIE, given)
            return answer
        if self._is_token(request.cookies.get(TOKEN_COOKIE, "")):
            return None
        return PlainTextResponse("Open the address with ?token= that `persist ui` printed.\n", 401)

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(errors="replace"), self._token.encode())
