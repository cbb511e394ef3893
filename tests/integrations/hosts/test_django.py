"""Django as a host: its own connections and transactions beside a store on the same file or server, in threads and in tasks."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

import django
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections, transaction
from django.http import HttpRequest, JsonResponse
from django.test import AsyncClient, Client
from django.urls import clear_url_caches, path

from persist import AsyncStore, Store, StoreBusy
from persist.settings import Settings

CLIENTS, ROUNDS, ENOUGH = 8, 6, 60.0
HI = [{"type": "text", "text": "hi"}]


class Urls:
    """What Django takes for the module of its URLs; each test has views of its own."""

    urlpatterns: list[Any] = []  # noqa: RUF012  # Django's own name for it


class Host:
    """Whose database a test has. Each has another name: Django keeps connections for names, in whatever thread or task."""

    names = count()
    alias = ""


if not settings.configured:
    settings.configure(ALLOWED_HOSTS=["*"], DATABASES={}, ROOT_URLCONF=Urls, SECRET_KEY="tests", USE_TZ=True)
    django.setup()


Serve = Callable[[Callable[..., Any]], None]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """A function that has Django serve a view."""

    def serve(view: Callable[..., Any]) -> None:
        monkeypatch.setattr(Urls, "urlpatterns", [path("orders/<str:id>", view)])
        clear_url_caches()

    yield serve
    clear_url_caches()


def database(url: str) -> dict[str, Any]:
    """What Django calls the database of a URL."""
    found: dict[str, Any] = {"ATOMIC_REQUESTS": False, "AUTOCOMMIT": True, "CONN_HEALTH_CHECKS": False, "CONN_MAX_AGE": 0}
    found |= {"TIME_ZONE": None, "TEST": {}, "USER": "", "PASSWORD": "", "HOST": "", "PORT": ""}
    if url.startswith("sqlite"):
        options = {"timeout": 20, "transaction_mode": "IMMEDIATE"}
        return found | {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///"), "OPTIONS": options}
    parts = urlsplit(url)
    host = parts.hostname or parse_qs(parts.query).get("host", [""])[0]
    found |= {"USER": parts.username or "", "PASSWORD": parts.password or "", "HOST": host, "PORT": parts.port or ""}
    return found | {"ENGINE": "django.db.backends.postgresql", "NAME": parts.path.removeprefix("/"), "OPTIONS": {}}


@pytest.fixture
def host_url(database_url: str) -> Iterator[str]:
    """A database with tables of both."""
    Store.open(database_url).close()
    Host.alias = f"host {next(Host.names)}"
    connections.settings[Host.alias] = database(database_url)
    with connections[Host.alias].cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id TEXT)")
    yield database_url
    connections[Host.alias].close()
    del connections[Host.alias]
    del connections.settings[Host.alias]


def add_order(id: str) -> None:
    with connections[Host.alias].cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES (%s)", [id])


def orders() -> set[str]:
    with connections[Host.alias].cursor() as cursor:
        cursor.execute("SELECT id FROM orders")
        return {id for (id,) in cursor.fetchall()}


def created(tx: Any, agent: str) -> Any:
    session = tx.chat.sessions.create(agent=agent, model={})
    tx.chat.messages.append(session.id, role="user", parts=HI)
    return session


def check(url: str) -> None:
    """As many as were asked for, of both, and what failed left nothing of either."""
    with Store.open(url) as store, store.read() as tx:
        assert {session.agent for session in tx.chat.sessions.list(limit=200).items} == orders()
    assert len(orders()) == CLIENTS * ROUNDS


def test_synchronous_views_in_threads(host_url: str, serve: Serve) -> None:
    """The store is written when Django's transaction has committed: on a file both would wait for the other else."""
    with Store.open(host_url) as store:

        def order(request: HttpRequest, id: str) -> JsonResponse:
            def after() -> None:
                with store.begin() as tx:
                    created(tx, id)

            with transaction.atomic(using=Host.alias):
                add_order(id)
                transaction.on_commit(after, using=Host.alias)
                if "fail" in request.GET:
                    raise ZeroDivisionError
            return JsonResponse({})

        serve(order)

        def visit(number: int) -> None:
            client = Client(raise_request_exception=False)
            for turn in range(ROUNDS):
                assert client.post(f"/orders/lost-{number}-{turn}?fail=1").status_code == 500
                assert client.post(f"/orders/{number}-{turn}").status_code == 200
            connections[Host.alias].close()

        with ThreadPoolExecutor(CLIENTS) as threads:
            for visited in [threads.submit(visit, number) for number in range(CLIENTS)]:
                visited.result(ENOUGH)
    check(host_url)


def visit_all() -> Awaitable[object]:
    async def visit(number: int) -> None:
        client = AsyncClient()
        for turn in range(ROUNDS):
            assert (await client.post(f"/orders/{number}-{turn}")).status_code == 200

    return asyncio.gather(*(visit(number) for number in range(CLIENTS)))


def in_transaction(id: str) -> None:
    """On a connection of its own, as each task has one."""
    with transaction.atomic(using=Host.alias):
        add_order(id)
    connections[Host.alias].close()


def test_asynchronous_views_and_an_asynchronous_store(host_url: str, serve: Serve) -> None:
    async def main() -> None:
        async with AsyncStore.open(host_url) as store:

            async def order(request: HttpRequest, id: str) -> JsonResponse:
                await sync_to_async(in_transaction)(id)
                async with store.begin() as tx:
                    session = await tx.chat.sessions.create(agent=id, model={})
                    await tx.chat.messages.append(session.id, role="user", parts=HI)
                return JsonResponse({})

            serve(order)
            await visit_all()

    asyncio.run(main())
    check(host_url)


@pytest.mark.parametrize("one_thread", [True, False], ids=["one thread for all", "a pool of threads"])
def test_asynchronous_views_that_hand_a_transaction_from_thread_to_thread(host_url: str, serve: Serve, one_thread: bool) -> None:
    """A synchronous store in asynchronous views, each step through Django's bridge to threads."""

    async def main(store: Store) -> None:
        pool = None if one_thread else ThreadPoolExecutor(2 * CLIENTS)
        turns = asyncio.Lock()  # one thread for all cannot wait in one request for what it has to end in another

        def in_thread(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
            bridged: Callable[..., Awaitable[Any]] = sync_to_async(function, thread_sensitive=one_thread, executor=pool)
            return bridged

        async def steps(id: str) -> None:
            block = store.begin()
            tx = await in_thread(block.__enter__)()
            await in_thread(created)(tx, id)
            await in_thread(block.__exit__)(None, None, None)

        async def order(request: HttpRequest, id: str) -> JsonResponse:
            async with turns if one_thread else nullcontext():
                await sync_to_async(in_transaction)(id)
                await steps(id)
            return JsonResponse({})

        serve(order)
        await visit_all()
        if pool is not None:
            pool.shutdown()

    with Store.open(host_url) as store:
        asyncio.run(main(store))
    check(host_url)


def test_a_store_inside_of_a_transaction_of_the_host(host_url: str) -> None:
    """On a server they are two transactions; on a file the second one gives up, and neither harms the other."""
    patient = Settings(busy_timeout_ms=10)
    with Store.open(host_url, settings=patient, sleep=lambda seconds: None) as store:
        with transaction.atomic(using=Host.alias):
            add_order("host")
            if host_url.startswith("sqlite"):
                with pytest.raises(StoreBusy, match="write lock"), store.begin():
                    raise AssertionError("entered")
            else:
                with store.begin() as tx:
                    created(tx, "host")
            with store.read() as tx:
                tx.chat.sessions.list()
        with store.begin() as tx:
            created(tx, "after")
    assert orders() == {"host"}
