"""The pages of a store inside of other applications: FastAPI, Starlette and Django, below a prefix, with the host's judgement."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIHandler
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount, Router
from starlette.types import ASGIApp

from persist import AsyncStore, Store
from persist.ui import create_app
from tests.integrations.hosts.test_django import Urls
from tests.ui.visitor import Visitor

assert Urls.urlpatterns is not None  # its module configures Django, once for all tests


def fastapi(pages: ASGIApp) -> ASGIApp:
    app = FastAPI()
    app.mount("/agents", pages)
    return app


def starlette(pages: ASGIApp) -> ASGIApp:
    return Starlette(routes=[Mount("/agents", pages)])


def in_django(pages: ASGIApp) -> ASGIApp:
    return Router([Mount("/agents", pages), Mount("/", ASGIHandler())])


HOSTS: dict[str, Callable[[ASGIApp], ASGIApp]] = {"fastapi": fastapi, "starlette": starlette, "django": in_django}


@pytest.fixture
def state(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as store:
        yield store


def by_header(request: Any) -> str | None:
    user: str | None = request.headers.get("x-user")
    return user


@pytest.mark.parametrize("host", HOSTS)
def test_every_address_is_below_the_prefix_and_the_host_says_who_acts(state: Store, host: str) -> None:
    run = state.workflows.runs.create("review", trigger_id="t", current_phase="plan")
    visitor = Visitor(HOSTS[host](create_app(state, allow_changes=True, authorize=by_header)))
    ada = {"X-User": "ada"}
    assert visitor.get("/agents/runs").status == 403
    page = visitor.get(f"/agents/runs/{run.id}", ada)
    assert (page.status, f'action="/agents/runs/{run.id}/cancel"' in page.text) == (200, True)
    assert visitor.get("/agents/static/persist.css").status == 200
    sent = visitor.post(f"/agents/runs/{run.id}/cancel", ada, back=f"/runs/{run.id}")
    assert (sent.status, sent.headers["location"]) == (303, f"/agents/runs/{run.id}")
    assert state.workflows.runs.get(run.id).status == "cancelled"
    visitor.close()


def test_the_pages_of_an_asynchronous_store(database_url: str) -> None:
    runner = asyncio.Runner()
    store = runner.run(_opened(database_url))
    run = runner.run(_made(store))
    visitor = Visitor(create_app(store, allow_changes=True), runner=runner)
    assert "review" in visitor.get("/runs").main
    assert visitor.post(f"/runs/{run}/cancel", back="/").status == 303
    runner.run(store.close())
    visitor.close()


async def _opened(url: str) -> AsyncStore:
    return await AsyncStore.open(url)


async def _made(store: AsyncStore) -> str:
    async with store.begin() as tx:
        return (await tx.workflows.runs.create("review", trigger_id="t", current_phase="plan")).id
