"""Which stores are shown: one, or all of a folder or of a server's tenants, each below an address of its own."""

import asyncio
import os
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from persist.cli.output import json_text
from persist.db.dialects.untrusted_files import is_database_file
from persist.errors import NotFound, PersistError, SchemaError, StoreBusy, StoreInUse, Unavailable
from persist.store.store import Store
from persist.tenants.tenants import Tenants
from persist.ui.addresses import from_segment
from persist.ui.app import Pages, error_page, frame, root_of, with_static
from persist.ui.rendering import page
from persist.ui.views import Site

_DEEP = 6
"""How many folders below the given one are looked into."""
_MOST = 2_000
"""How many stores are listed."""
_OPEN = 20
"""How many stores of a folder are open at a time; the one that was looked at longest ago is closed for another."""
Open = Callable[[], Store]


@dataclass(frozen=True, slots=True)
class Found:
    """A store that a list shows. `size` in bytes and `changed_at` are None where only the server knows them."""

    name: str
    size: int | None = None
    changed_at: datetime | None = None


class Collection(ABC):
    """Stores that have names."""

    kind: str

    @abstractmethod
    def list(self) -> list[Found]:
        """All of them, by name."""

    @abstractmethod
    def open(self, name: str, *, read_only: bool) -> Store:
        """One of them. Raises NotFound."""


class Folder(Collection):
    """The SQLite files below a folder: those of instances, runs and tenants."""

    kind = "file"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def list(self) -> list[Found]:
        found = []
        for path in self._files(self._folder, 0):
            status = path.stat()
            changed = datetime.fromtimestamp(status.st_mtime, UTC)
            found.append(Found(path.relative_to(self._folder).as_posix(), status.st_size, changed))
            if len(found) == _MOST:
                break
        return found

    def open(self, name: str, *, read_only: bool) -> Store:
        """Only what the list names can be opened: no name leads out of the folder."""
        path = self._folder / name
        if not any(one == path for one in self._files(self._folder, 0)):
            raise NotFound("store", name)
        return Store.open(path, read_only=read_only, migrate=False)

    def _files(self, folder: Path, depth: int) -> Iterator[Path]:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:  # a folder that may not be read has nothing to show
            return
        for entry in entries:
            path = folder / entry.name
            if entry.is_dir(follow_symlinks=False):
                if depth < _DEEP and not entry.name.startswith("."):
                    yield from self._files(path, depth + 1)
            elif entry.is_file(follow_symlinks=False) and is_database_file(path):
                yield path


class TenantsOfServer(Collection):
    """The tenants of a Postgres database: a schema each."""

    kind = "tenant"

    def __init__(self, url: str) -> None:
        self._url = url

    def list(self) -> list[Found]:
        found, after = list[Found](), None
        with Tenants(self._url) as tenants:
            while len(found) < _MOST:
                listed = tenants.list(limit=1000, after=after)
                found += [Found(tenant.name) for tenant in listed.items]
                if (after := listed.cursor) is None:
                    break
        return found

    def open(self, name: str, *, read_only: bool) -> Store:
        return Store.open(self._url, schema=name, read_only=read_only, migrate=False)


class OneStore:
    """The pages of one store, which is opened when it is first looked at, and tried again while it cannot be opened."""

    def __init__(self, open: Open, site: Site) -> None:
        self._open, self._site = open, site
        self._pages: Pages | None = None
        self._store: Store | None = None
        self._opening = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, with the error where the store cannot be opened."""
        answer: ASGIApp
        try:
            answer = (await self._opened()).application
        except PersistError as error:
            answer = with_static(error_page(Request(scope), error, self._site))
        await answer(scope, receive, send)

    async def _opened(self) -> Pages:
        async with self._opening:
            if self._pages is None:
                self._store = await asyncio.to_thread(self._open)
                self._pages = Pages(self._store, self._site)
            return self._pages

    def check(self) -> None:
        """Open the store once, before it is served. Raises NotFound for a missing file; what else is wrong, its pages say."""
        with suppress(SchemaError, StoreBusy, Unavailable):
            self._open().close()

    def end_streams(self) -> None:
        """End what is followed live, so that the server can stop."""
        if self._pages is not None:
            self._pages.viewers.close()

    def close(self) -> None:
        """Close the store; the pages open it again if they are asked. Raises StoreInUse while a page reads it."""
        if self._store is not None:
            self._store.close()
        self._store = self._pages = None


class ManyStores:
    """A list of stores at `/`, and the pages of each below `/stores/NAME`."""

    def __init__(self, stores: Collection, site: Site) -> None:
        self._stores, self._site = stores, site
        self._open: OrderedDict[str, OneStore] = OrderedDict()
        routes = [Route("/", self._listed), Mount("/stores/{name}", self._of_one)]
        self._application = with_static(Router(routes))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._application(scope, receive, send)

    async def _of_one(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._one(from_segment(scope["path_params"]["name"]))(scope, receive, send)

    def _one(self, name: str) -> OneStore:
        one = self._open.get(name)
        if one is None:
            opening = partial(self._stores.open, name, read_only=not self._site.allow_changes)
            one = self._open[name] = OneStore(opening, replace(self._site, title=name, home=True))
        self._open.move_to_end(name)
        for other in list(self._open)[: max(0, len(self._open) - _OPEN)]:
            with suppress(StoreInUse):  # somebody reads it: it is closed another time
                self._open[other].close()
                del self._open[other]
        return one

    async def _listed(self, request: Request) -> Response:
        try:
            found = await asyncio.to_thread(self._stores.list)
        except PersistError as error:
            return error_page(request, error, self._site)
        if request.query_params.get("format") == "json":
            return Response(json_text({"items": [one.name for one in found], "cursor": None}), media_type="application/json")
        shown = {**frame(self._site, None), "title": self._site.title, "found": found, "kind": self._stores.kind}
        return HTMLResponse(page("stores.html", root_of(request), datetime.now(UTC), shown))

    def end_streams(self) -> None:
        """End what is followed live, so that the server can stop."""
        for one in self._open.values():
            one.end_streams()

    def close(self) -> None:
        """Close all stores."""
        for one in self._open.values():
            with suppress(StoreInUse):  # a page that is still read: the process is about to end
                one.close()
