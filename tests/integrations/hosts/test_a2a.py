"""An agent of A2A behind a real HTTP server: owners whose requests and messages have the same ids see their own tasks alone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.tasks import TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, Part, Task, TaskState, TaskStatus
from starlette.applications import Starlette
from starlette.requests import Request

from persist import AsyncStore, Store
from persist.integrations.a2a import PersistPushNotificationConfigStore, PersistTaskStore
from tests.integrations.a2a.scenes import Named
from tests.integrations.serving import served


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


async def visit(address: str) -> None:
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
        do(visit(address))
