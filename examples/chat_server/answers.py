"""Answers that outlive the request for them: a task records what the agent says, and each response follows the store."""

import asyncio
from functools import partial
from typing import Any
from uuid import uuid4

from pydantic_ai import Agent, CancellationToken
from pydantic_ai.run import AgentRunResult
from pydantic_ai.ui.vercel_ai import VercelAIAdapter
from pydantic_ai.ui.vercel_ai.request_types import SubmitMessage

from persist import AsyncStore
from persist.chat.recording.async_recorder import AsyncRecorder
from persist.chat.schemas import UIMessage


class Answers:
    """The answers that this process records now."""

    def __init__(self, store: AsyncStore, agent: Agent[None, Any]) -> None:
        self._store = store
        self._agent = agent
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, session_id: str, history: list[UIMessage], continues: str | None) -> str:
        """Begin to answer, and return the cursor from which the browser follows.

        `continues` names the message that the answer goes on in. Raises Conflict if an answer runs already.
        """
        adapter = VercelAIAdapter(self._agent, SubmitMessage(id=session_id, messages=history), sdk_version=7)
        message_id = continues or f"msg_{uuid4().hex}"
        recorder = self._store.record(session_id)
        await recorder.feed({"type": "start", "messageId": message_id})
        cursor = await self._store.chat.messages.cursor(session_id, message_id)  # the browser has what is before
        task = asyncio.create_task(_record(recorder, adapter, _steps(history, message_id)))
        self._tasks.add(task)  # the event loop keeps no task alive
        task.add_done_callback(self._tasks.discard)
        return cursor

    async def close(self) -> None:
        """End what still runs, because the server stops."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _record(recorder: AsyncRecorder, adapter: VercelAIAdapter[None, Any], step: int) -> None:
    """Record one run of the agent, until it ends or somebody presses the stop button."""
    stop = CancellationToken()
    async with asyncio.TaskGroup() as group, recorder:
        group.create_task(_pass_on(recorder, stop))
        stream = adapter.run_stream(cancellation_token=stop, on_complete=partial(_count, recorder, step))
        async for frame in adapter.encode_stream(stream):
            await recorder.feed_sse(frame)


async def _pass_on(recorder: AsyncRecorder, stop: CancellationToken) -> None:
    """Cancel the run when the session's stop button is pressed, in whatever process; a closed recorder ends the waiting."""
    if await recorder.stop_requested:
        stop.cancel()


async def _count(recorder: AsyncRecorder, step: int, result: AgentRunResult[Any]) -> None:
    """Store what the run used up."""
    used = result.usage
    await recorder.step_usage(
        step,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cache_read_tokens=used.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens,
    )


def _steps(history: list[UIMessage], message_id: str) -> int:
    """How many steps a message has already."""
    parts = [part for message in history if message["id"] == message_id for part in message["parts"]]
    return sum(part["type"] == "step-start" for part in parts)
