"""FastAPI, Celery and MCP servers as hosts of a store."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import anyio
import httpx
import pytest
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.tasks import TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, Part, Task, TaskState, TaskStatus
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from persist import AsyncStore, Store
from persist.integrations.a2a import PersistPushNotificationConfigStore, PersistTaskStore
from persist.integrations.mcp import PersistEventStore, PersistSessionManager
from persist.store.async_store import AsyncTransaction
from persist.store.transaction import Transaction
from tests.integrations.a2a.scenes import Named
from tests.integrations.mcp.scenes import VERSION, Answer, Client, server
from tests.integrations.mcp.test_events import two_clients
from tests.integrations.serving import served
from tests.markdown import DOCS, ROOT

CLIENTS, ROUNDS = 8, 12
HI = [{"type": "text", "text": "hi"}]


def sync_app(store: Store) -> FastAPI:
    """Dependencies and endpoints that FastAPI runs in its pool of threads, each call in another one."""
    app = FastAPI()

    def writing() -> Iterator[Transaction]:
        with store.begin() as tx:
            yield tx

    def reading() -> Iterator[Transaction]:
        with store.read() as tx:
            yield tx

    @app.post("/sessions")
    def create(tx: Annotated[Transaction, Depends(writing, scope="function")], agent: str) -> dict[str, str]:
        session = tx.chat.sessions.create(agent=agent, model={})
        tx.chat.messages.append(session.id, role="user", parts=HI)
        return {"id": session.id}

    @app.post("/undone")
    def undone(tx: Annotated[Transaction, Depends(writing, scope="function")]) -> None:
        tx.chat.sessions.create(agent="undone", model={})
        raise ZeroDivisionError

    @app.post("/sessions/{session_id}/messages")
    async def append(tx: Annotated[Transaction, Depends(writing, scope="function")], session_id: str) -> dict[str, str]:
        """On the event loop itself, as many hosts have it by mistake."""
        return {"id": tx.chat.messages.append(session_id, role="user", parts=HI).id}

    @app.get("/sessions/{session_id}")
    def show(tx: Annotated[Transaction, Depends(reading)], session_id: str) -> dict[str, int]:
        return {"messages": len(tx.chat.messages.list(session_id))}

    return app


def async_app(store: AsyncStore) -> FastAPI:
    """The same with coroutines."""
    app = FastAPI()

    async def writing() -> AsyncIterator[AsyncTransaction]:
        async with store.begin() as tx:
            yield tx

    async def reading() -> AsyncIterator[AsyncTransaction]:
        async with store.read() as tx:
            yield tx

    @app.post("/sessions")
    async def create(tx: Annotated[AsyncTransaction, Depends(writing, scope="function")], agent: str) -> dict[str, str]:
        session = await tx.chat.sessions.create(agent=agent, model={})
        await tx.chat.messages.append(session.id, role="user", parts=HI)
        return {"id": session.id}

    @app.post("/undone")
    async def undone(tx: Annotated[AsyncTransaction, Depends(writing, scope="function")]) -> None:
        await tx.chat.sessions.create(agent="undone", model={})
        raise ZeroDivisionError

    @app.post("/sessions/{session_id}/messages")
    async def append(tx: Annotated[AsyncTransaction, Depends(writing, scope="function")], session_id: str) -> dict[str, str]:
        return {"id": (await tx.chat.messages.append(session_id, role="user", parts=HI)).id}

    @app.get("/sessions/{session_id}")
    async def show(tx: Annotated[AsyncTransaction, Depends(reading)], session_id: str) -> dict[str, int]:
        return {"messages": len(await tx.chat.messages.list(session_id))}

    return app


async def visit(client: httpx.AsyncClient, number: int) -> None:
    """What one client asks for: everything succeeds, and what it wrote is what it reads."""
    for turn in range(ROUNDS):
        made = await client.post("/sessions", params={"agent": f"{number} {turn}"})
        assert made.status_code == 200, made.text
        path = f"/sessions/{made.json()['id']}"
        assert (await client.post("/undone")).status_code == 500
        added = await client.post(f"{path}/messages")
        assert added.status_code == 200, added.text
        found = await client.get(path)
        assert (found.status_code, found.json()) == (200, {"messages": 2})


async def visit_all(client: httpx.AsyncClient) -> None:
    await asyncio.gather(*(visit(client, number) for number in range(CLIENTS)))


def in_process(app: FastAPI) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://host", timeout=60)


def check(url: str) -> None:
    with Store.open(url) as store, store.read() as tx:
        page = tx.chat.sessions.list(limit=200)
        assert len(page.items) == CLIENTS * ROUNDS
        assert "undone" not in {session.agent for session in page.items}


def test_synchronous_dependencies(database_url: str) -> None:
    async def main(app: FastAPI) -> None:
        async with in_process(app) as client:
            await visit_all(client)

    with Store.open(database_url) as store:
        asyncio.run(main(sync_app(store)))
    check(database_url)


def test_asynchronous_dependencies(database_url: str) -> None:
    async def main() -> None:
        async with AsyncStore.open(database_url) as store, in_process(async_app(store)) as client:
            await visit_all(client)

    asyncio.run(main())
    check(database_url)


@pytest.mark.parametrize("made", [sync_app, async_app], ids=["sync", "async"])
def test_behind_a_server(database_url: str, made: Callable[[Any], FastAPI]) -> None:
    async def main(address: str) -> None:
        one_each = httpx.Limits(max_keepalive_connections=0)  # the server closes one after an error, as another request is sent
        async with httpx.AsyncClient(base_url=address, timeout=60, limits=one_each) as client:
            await visit_all(client)

    store: Any = Store.open(database_url) if made is sync_app else asyncio.run(_opened(database_url))
    with served(made(store)) as address:
        asyncio.run(main(address))
    store.close() if made is sync_app else asyncio.run(store.close())
    check(database_url)


async def _opened(url: str) -> AsyncStore:
    return await AsyncStore.open(url)


# Celery as a host: a worker whose pool forks, with the store that docs/how-to/celery-and-fork.md opens in each process.


DEADLINE = 90.0
QUEUE = """broker="filesystem://", set_as_current=True)
app.conf.update(broker_transport_options={"data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "control"}"""


@pytest.mark.long
def test_tasks_of_a_forked_pool_write_to_the_store(tmp_path: Path) -> None:
    """As the page has it, but for the broker, which here is a folder."""
    page = (DOCS / "how-to" / "celery-and-fork.md").read_text(encoding="utf-8")
    (module,) = re.findall(r"^```python\n(from celery import .*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert module.count('broker="memory://"') == 1
    text = "from persist import Store\n" + module.replace('broker="memory://"', QUEUE)
    (tmp_path / "tasks.py").write_text(text, encoding="utf-8")
    for folder in ("queue", "control"):
        (tmp_path / folder).mkdir()
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    with Store.open(f"sqlite:///{(tmp_path / 'tasks.db').as_posix()}") as store:
        session = store.chat.sessions.create(agent="build", model={})
    send = "import sys, tasks; [tasks.answer.delay(sys.argv[1], 'hi', id) for id in ('one', 'two', 'one')]"
    subprocess.run([sys.executable, "-c", send, session.id], cwd=tmp_path, env=environment, check=True, timeout=DEADLINE)

    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "tasks",
        "worker",
        "--pool",
        "prefork",
        "--concurrency",
        "2",
        "--loglevel",
        "INFO",
    ]
    log = tmp_path / "worker.log"
    with log.open("w") as said, subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=said, stderr=said) as worker:
        try:
            end = time.monotonic() + DEADLINE
            while log.read_text(encoding="utf-8").count("succeeded") < 3:
                assert worker.poll() is None, log.read_text(encoding="utf-8")
                assert time.monotonic() < end, log.read_text(encoding="utf-8")
                time.sleep(0.2)
        finally:
            worker.terminate()
    text = log.read_text(encoding="utf-8")
    assert worker.returncode == 0, text
    assert "Traceback" not in text
    with Store.open(f"sqlite:///{(tmp_path / 'tasks.db').as_posix()}") as store:
        assert sorted(message["id"] for message in store.chat.messages.list(session.id)) == ["one", "two"]


# A server of MCP behind a real HTTP server: two clients that both begin at request 1 are each sent their own messages again.


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


# An agent of A2A behind a real HTTP server: owners whose requests and messages have the same ids see their own tasks alone.


class Echo(AgentExecutor):
    """Says what it was told, in an artifact."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        task = Task(id=context.task_id, context_id=context.context_id, status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED))
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.add_artifact([Part(text=context.get_user_input())], artifact_id="echo")
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


class ByHeader(DefaultServerCallContextBuilder):
    """The caller is whom a header names."""

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.user = Named(request.headers["x-user"])
        return context


async def ask(address: str, who: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request. Each client begins at number 1."""
    headers = {"x-user": who, "a2a-version": "1.0"}
    async with httpx.AsyncClient(timeout=60, headers=headers) as http:
        sent = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await http.post(address, json=sent)
    found: dict[str, Any] = answer.json()
    assert (answer.status_code, found["id"]) == (200, 1), answer.text
    return found


async def visit_agent(address: str) -> None:
    async def send(who: str) -> Any:
        message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": f"I am {who}"}]}
        return (await ask(address, who, "SendMessage", {"message": message}))["result"]["task"]

    tasks = dict(zip(("ann", "bob"), await asyncio.gather(send("ann"), send("bob")), strict=True))
    assert tasks["ann"]["id"] != tasks["bob"]["id"]
    for who, other in (("ann", "bob"), ("bob", "ann")):
        assert tasks[who]["status"]["state"] == "TASK_STATE_COMPLETED"
        found = (await ask(address, who, "GetTask", {"id": tasks[who]["id"]}))["result"]
        assert [part["text"] for part in found["artifacts"][0]["parts"]] == [f"I am {who}"]
        listed = (await ask(address, who, "ListTasks", {}))["result"]
        assert [one["id"] for one in listed["tasks"]] == [tasks[who]["id"]]
        assert "error" in await ask(address, who, "GetTask", {"id": tasks[other]["id"]})


def test_two_owners_of_one_server(store: Store | AsyncStore, do: Callable[[Awaitable[Any]], Any]) -> None:
    handler = DefaultRequestHandler(
        agent_executor=Echo(),
        task_store=PersistTaskStore(store),
        push_config_store=PersistPushNotificationConfigStore(store),
        agent_card=AgentCard(name="echo", capabilities=AgentCapabilities(streaming=True)),
    )
    routes = create_jsonrpc_routes(handler, "/", context_builder=ByHeader())
    with served(Starlette(routes=routes)) as address:
        do(visit_agent(address))
