"""Pages of `persist ui` over a large store, and over one of 1,000 runs: 100,000 runs, 30,000 chats and 300,000 parts.

A tenth as many other things can be listed, and two weeks of everything come before them. A page is the application's whole answer
to a request, called within this process. Its verbs are those that it called, called once more in one snapshot.
`--full` is for ten times as much.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar
from unittest.mock import patch
from urllib.parse import urlsplit

from benchmarks import page_rows, page_viewers
from benchmarks.goals import reached
from benchmarks.measure import AsyncOperation, Row, interleaved_async, middle, us
from benchmarks.place import Place
from persist import Store
from persist.store.transaction import Transaction
from persist.testing import FrozenClock
from persist.ui.app import Pages
from persist.ui.reading import Reader
from persist.ui.views import Site, Visit

T = TypeVar("T")
FEW, MANY, MANY_QUICKLY, MANY_FULLY = 1_000, 100_000, 10_000, 1_000_000
ROUNDS = 60
LISTS = (
    *("/runs", "/runs?status=failed", "/approvals", "/queue", "/chat", "/chat?agent=agent-3", "/conversations", "/programs"),
    *("/telemetry", "/usage", "/messaging", "/frameworks", "/events"),
)
_TRANSCRIPT = f"/chat/{page_rows.TRANSCRIPT}"


def rows(place: Place) -> Iterator[Row]:
    """On both databases."""
    many = MANY_QUICKLY if place.quick else MANY_FULLY if place.full else MANY
    yield from _compare(place.file("pages-few"), place.file("pages-many"), (None, None), many)
    if place.postgres is not None:
        yield from _compare(place.postgres, place.postgres, ("pages_few", "persist"), many)


def _compare(few: str, many: str, schemas: tuple[str | None, str | None], size: int) -> Iterator[Row]:
    where = "" if schemas[0] is None else "Postgres: "
    with ExitStack() as stack:
        small, large = _sized(stack, few, schemas[0], FEW), _sized(stack, many, schemas[1], size)
        yield from asyncio.run(_in_process(small, large, where))
    yield from page_viewers.rows(many, schemas[1], where)


def _sized(stack: ExitStack, url: str, schema: str | None, runs: int) -> "Looked":
    page_rows.fill(url, schema, runs)
    clock = FrozenClock(page_rows.now_of(runs))
    return Looked(stack.enter_context(Store.open(url, schema=schema, clock=clock)), runs)


async def _in_process(few: "Looked", many: "Looked", where: str) -> list[Row]:
    found, costs, growths = list[Row](), dict[str, float](), dict[str, float]()
    suffix, size = "-postgres" if where else "", f"{many.runs:,} runs"
    cold = await _seconds(many, _TRANSCRIPT)
    for path in LISTS:
        calls = await many.heard(path)
        times = await _middles({"many": many.opens(path), "few": few.opens(path), "verbs": many.again(calls)})
        page, small, verbs = times["many"], times["few"], times["verbs"]
        costs[path], growths[path] = page / verbs, page / small
        detail = f"{us(page)} vs {us(verbs)}, {len(calls)} calls; {many.size(path)}"
        found.append(Row(f"{where}`{path}`, vs its verbs", page / verbs, 3.0, detail))
        found.append(Row(f"  … among {size} vs {few.runs:,}", page / small, 1.2, f"{us(page)} vs {us(small)}"))
    for key, by_path in (("pages-lists", costs), ("pages-growth", growths)):
        worst = max(by_path, key=by_path.__getitem__)
        found.append(reached(f"{key}{suffix}", by_path[worst], f"`{worst}` of {len(LISTS)} lists, {size}"))
    times = await _middles({path: many.opens(path) for path in ("/", _TRANSCRIPT)})
    found.append(reached(f"pages-home{suffix}", times["/"] * 1e3, f"median; {many.size('/')}, {size}"))
    detail = f"median; {cold * 1e3:.0f} ms when it is the first page of a new process; {many.size(_TRANSCRIPT)}"
    found.append(reached(f"pages-transcript{suffix}", times[_TRANSCRIPT] * 1e3, detail))
    return found


async def _middles(alternatives: Mapping[str, AsyncOperation]) -> dict[str, float]:
    taken = await interleaved_async(alternatives, rounds=ROUNDS, warm=3)
    return {name: middle(seconds) for name, seconds in taken.items()}


async def _seconds(looked: "Looked", path: str) -> float:
    (taken,) = (await interleaved_async({"first": looked.opens(path)}, rounds=1, warm=0))["first"]
    return taken


@dataclass(frozen=True)
class Called:
    """A verb with what it was called with, or a function that was asked in a snapshot."""

    names: tuple[str, ...]
    question: Callable[..., Any] | None
    given: tuple[Any, ...]
    named: Mapping[str, Any]

    def again(self, visit: Visit) -> None:
        """Call it once more."""
        if self.question is not None:
            visit.ask(self.question, *self.given)
            return
        found: Any = visit.tx
        for name in self.names:
            found = getattr(found, name)
        found(*self.given, **self.named)


class Looked:
    """The pages of a store of so many runs, asked without a server."""

    def __init__(self, store: Store, runs: int) -> None:
        self.runs, self._store = runs, store
        self._pages = Pages(store, Site())
        self._sizes = dict[str, int]()

    def size(self, path: str) -> str:
        """How large a page was."""
        return f"{self._sizes[path] / 1000:,.0f} KB"

    def opens(self, path: str) -> AsyncOperation:
        """An operation that opens a page and reads it to its last byte."""
        address = urlsplit(path)
        scope = {
            **{"type": "http", "method": "GET", "path": address.path, "root_path": "", "scheme": "http"},
            **{"query_string": address.query.encode(), "headers": [(b"host", b"127.0.0.1:8790")]},
        }

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def open() -> None:
            status, length = 0, 0

            async def send(message: Any) -> None:
                nonlocal status, length
                status, length = message.get("status", status), length + len(message.get("body", b""))

            await self._pages.application(dict(scope), receive, send)
            if status != 200:
                raise AssertionError(f"{path} answers with {status}")
            self._sizes[path] = length

        return open

    async def heard(self, path: str) -> list[Called]:
        """What a page calls that was opened before."""
        await self.opens(path)()
        calls = list[Called]()

        def ask(visit: Visit, question: Callable[..., T], *given: Any) -> T:
            calls.append(Called((), question, given, {}))
            return asked(visit, question, *given)

        asked, reader = Visit.ask, Reader(self._store)

        async def read(function: Callable[[Transaction], T]) -> T:
            return await reader.read(lambda tx: function(_Heard(tx, calls)))  # type: ignore[arg-type]  # stands for it

        with patch.object(Visit, "ask", ask), patch.object(self._pages._reader, "read", read):
            await self.opens(path)()
        return calls

    def again(self, calls: list[Called]) -> AsyncOperation:
        """An operation that makes these calls in one snapshot."""
        now = self._store.runtime.clock()

        async def call() -> None:
            with self._store.read() as tx:
                visit = Visit(tx, self._store, Site(), "/", {}, {}, now)
                for one in calls:
                    one.again(visit)

        return call


class _Heard:
    """A transaction, or one of its aggregates, that notes what is called."""

    def __init__(self, heard: Any, calls: list[Called], names: tuple[str, ...] = ()) -> None:
        self._heard, self._calls, self._names = heard, calls, names

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._heard, name)
        if name.startswith("_"):
            return found
        names = (*self._names, name)
        if not callable(found):
            return _Heard(found, self._calls, names)

        def verb(*given: Any, **named: Any) -> Any:
            self._calls.append(Called(names, None, given, named))
            return found(*given, **named)

        return verb
