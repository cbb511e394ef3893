"""The application: the addresses of all pages, forms and streams, and how each is answered."""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from persist.cli.output import json_text
from persist.cli.root import error_as_json
from persist.errors import (
    Conflict,
    InvalidValue,
    NotFound,
    NotPermitted,
    PersistError,
    SchemaError,
    StoreCorrupt,
    StoreError,
    TransitionError,
)
from persist.store.async_store import AsyncStore
from persist.store.store import Store
from persist.store.transaction import Transaction
from persist.ui.addresses import from_segment, is_local, with_query
from persist.ui.live import EventStream, Viewers
from persist.ui.pages import SECTIONS
from persist.ui.protection import FORM_COOKIE, SAID_COOKIE, Authorize, WithHeaders, actor_of, check_origin, form_token, set_cookie
from persist.ui.reading import Reader
from persist.ui.rendering import page
from persist.ui.views import Action, Change, Download, Listening, Site, Stream, View, Visit

log = logging.getLogger("persist")
_STATIC = Path(__file__).parent / "static"
_MOST_BYTES = 1 << 20
"""How large a form may be."""


class UnshownError(PersistError):
    """A page failed over what it found; the log says where."""

    def __init__(self, path: str, error: Exception) -> None:
        super().__init__(f"{path} cannot be shown: {type(error).__name__}. The log of the server says more.")


_STATUS: tuple[tuple[type[PersistError], int], ...] = (
    (NotFound, 404),
    (InvalidValue, 400),
    (NotPermitted, 403),
    (UnshownError, 500),
    (Conflict, 409),
    (TransitionError, 409),
    (StoreCorrupt, 200),
    (SchemaError, 503),
    (StoreError, 503),
)
"""How a page ends that an error keeps from being shown. What cannot be read is shown as such, which is no failure of the page."""


def create_app(
    store: Store | AsyncStore,
    *,
    allow_changes: bool = False,
    authorize: Authorize | None = None,
    title: str | None = None,
    session_logs: str | Path | None = None,
) -> ASGIApp:
    """The pages of a store as an ASGI application, to be mounted under any prefix. The caller closes the store.

    `allow_changes`: with forms to answer, stop, pause and retry. `authorize(request)` returns who acts, for the log of events, or
    None for one who may not look; without it everyone who reaches the application may. `session_logs`: the folder of these files.
    """
    site = Site(title or "persist", allow_changes, None if session_logs is None else Path(session_logs))
    return Pages(store, site, authorize).application


class Pages:
    """Answers requests about one store. `viewers` are those who follow something live."""

    def __init__(self, store: Store | AsyncStore, site: Site, authorize: Authorize | None = None) -> None:
        self.site, self.viewers = site, Viewers()
        self._shared: dict[str, Any] = {}
        self._reader, self._authorize = Reader(store), authorize
        routes: list[BaseRoute] = [Route("/healthz", self._healthz)]
        for section in SECTIONS:
            # what is told live and what is sent stand before the pages, whose last part takes any id
            routes += [Route(one.path, self._answering(self._listen, one)) for one in section.streams]
            routes += [Route(one.path, self._answering(self._act, one), methods=["POST"]) for one in section.actions]
            routes += [Route(one.path, self._answering(self._give, one)) for one in section.downloads]
            routes += [Route(one.path, self._answering(self._look, one)) for one in section.views]
        self.application = with_static(Router(routes, default=self._nothing_here))

    def _answering(
        self, answer: Callable[[Request, Any], Awaitable[Response]], to: View | Action | Stream | Download
    ) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            try:
                return await answer(request, to)
            except PersistError as error:
                return error_page(request, error, self.site)
            except Exception as error:  # a row that holds what no page expects is no reason for a page without words
                log.exception("the page %s cannot be shown", request.url.path)
                return error_page(request, UnshownError(path_of(request), error), self.site)

        return respond

    # -- pages

    async def _look(self, request: Request, view: View) -> Response:
        await actor_of(request, self._authorize)
        query = dict(request.query_params)
        as_json = query.pop("format", None) == "json"
        token, new = form_token(request) if self.site.allow_changes else ("", False)
        said = unquote(request.cookies.get(SAID_COOKIE, ""))

        def read(tx: Transaction) -> str:
            visit = self._visit(tx, request, query)
            if as_json:
                return json_text(view.json(visit).json)
            return page(view.template, root_of(request), visit.now, self._around(visit, view.body(visit), said, token))

        text = await self._reader.read(read)
        if as_json:
            return Response(text, media_type="application/json")
        response: Response = HTMLResponse(text)
        if new:
            set_cookie(response, request, FORM_COOKIE, token)
        if said:
            response.delete_cookie(SAID_COOKIE, path=root_of(request) or "/")
        return response

    async def _give(self, request: Request, download: Download) -> Response:
        await actor_of(request, self._authorize)
        query = dict(request.query_params)
        file = await self._reader.read(lambda tx: download.gives(self._visit(tx, request, query)))
        # what is kept is never opened in its place, whatever it says that it is
        kept = {} if file.name is None else {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}"}
        return Response(file.body, media_type=file.media_type, headers=kept)

    def _visit(self, tx: Transaction, request: Request, query: Mapping[str, str]) -> Visit:
        values = _values(request)
        now = self._reader.store.runtime.clock()
        return Visit(tx, self._reader.store, self.site, path_of(request), values, query, now)

    def _around(self, visit: Visit, shown: Mapping[str, Any], said: str, token: str) -> dict[str, Any]:
        """What every page has around what it shows."""
        return {
            **frame(self.site, visit.path),
            "query": visit.query,
            "here": with_query(visit.path, visit.query),
            "as_json": with_query(visit.path, {**visit.query, "format": "json"}),
            "said": said,
            "token": token,
            **shown,
        }

    # -- changes

    async def _act(self, request: Request, action: Action) -> Response:
        actor = await actor_of(request, self._authorize)
        if not self.site.allow_changes:
            raise NotPermitted("these pages only look; `persist ui --allow-changes` lets them change something.")
        form = await _form(request)
        check_origin(request, form)
        actor = actor or self._reader.store.runtime.settings.actor or "ui"
        values = _values(request)
        said = await self._reader.write(lambda tx: action.does(Change(tx, values, form, actor)), actor)
        back = form.get("back", "/")
        response = RedirectResponse(root_of(request) + (back if is_local(back) else "/"), 303)
        set_cookie(response, request, SAID_COOKIE, quote(said), max_age=60)
        return response

    # -- live

    async def _listen(self, request: Request, stream: Stream) -> Response:
        await actor_of(request, self._authorize)
        if self.viewers.is_full:
            return PlainTextResponse("Too many are looking on. Try again later.\n", 503, {"Retry-After": "10"})
        query, values = dict(request.query_params), _values(request)
        await self._reader.read(lambda tx: stream.checks(self._visit(tx, request, query)))
        last = request.headers.get("last-event-id") or query.get("after")
        listening = Listening(
            self._reader.store, self.site, values, query, self._reader.read, last, root_of(request), self._shared
        )
        return EventStream(stream.tells(listening), self.viewers)

    # -- what goes wrong

    async def _healthz(self, request: Request) -> Response:
        """For machines: whether the store can be read."""
        try:
            await self._reader.read(lambda tx: tx.workflows.runs.count(exact=False))
        except PersistError as error:
            return Response(json.dumps({"ok": False, "error": str(error)}), 503, media_type="application/json")
        return Response('{"ok": true}', media_type="application/json")

    async def _nothing_here(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        await error_page(request, NotFound("page", path_of(request)), self.site)(scope, receive, send)


def error_page(request: Request, error: PersistError, site: Site) -> Response:
    """What stands where a page cannot be shown: what was looked for, and which command helps."""
    status = next((code for kind, code in _STATUS if isinstance(error, kind)), 503)
    if request.query_params.get("format") == "json":
        text = json_text({"error": error_as_json(error)})
        return Response(text, 422 if status == 200 else status, media_type="application/json")
    kind = {404: "missing", 400: "invalid", 403: "refused", 409: "late"}.get(status, "unreadable" if status == 200 else "down")
    shown = {**frame(site, path_of(request)), "title": "Not shown", "error": error, "kind": kind}
    return HTMLResponse(page("error.html", root_of(request), datetime.now(UTC), shown), status)


def frame(site: Site, path: str | None) -> dict[str, Any]:
    """What the frame of a page needs. Without a path it has no menu: it is of no single store."""
    below = [one.path for one in SECTIONS if one.path != "/" and f"{path}/".startswith(f"{one.path}/")]
    return {
        "site": site,
        "menu": [] if path is None else [(one.label, one.path) for one in SECTIONS],
        "section": next(iter(below), "/"),
        "may_change": site.allow_changes,
        "as_json": None,
        "refresh": False,
        "said": "",
    }


def with_static(app: ASGIApp) -> ASGIApp:
    """The application with the files that its pages name, and with the headers that protect them."""
    # pages are sent as they are: how well they compress would tell what else is in them to one who chooses an address's filter
    files = GZipMiddleware(_Files(directory=_STATIC))
    return WithHeaders(Router([Mount("/static", files), Mount("/", app)]))


class _Files(StaticFiles):
    """The files that pages name: a browser keeps them, and asks whether they are still the same."""

    def file_response(self, *given: Any, **named: Any) -> Response:
        response = super().file_response(*given, **named)
        response.headers["Cache-Control"] = "no-cache"
        return response


def root_of(request: Request) -> str:
    """Where the application is mounted: what stands before each of its addresses, quoted."""
    return quote(str(request.scope.get("root_path", "")).rstrip("/"), errors="replace")


def path_of(request: Request) -> str:
    """The address below that, quoted."""
    mounted = str(request.scope.get("root_path", "")).rstrip("/")
    return quote(str(request.scope["path"]).removeprefix(mounted) or "/", errors="replace")


def _values(request: Request) -> dict[str, str]:
    return {name: from_segment(value) for name, value in request.path_params.items()}


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form. Raises InvalidValue for one that is too large, or that no browser sends."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_BYTES:
            raise InvalidValue("form", f"it is larger than {_MOST_BYTES:,} bytes.")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=False, errors="strict"))
    except ValueError:
        raise InvalidValue("form", "it is no form that a browser sends.") from None
