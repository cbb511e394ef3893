"""A model without a network, for a first look and for tests: it says what the chat can do, word by word."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

from pydantic_ai.messages import BinaryContent, ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

TOUR = (
    "You said “{question}”. This answer comes word by word, and each word is in the store before you see it. Reload the page "
    "while I speak, open it a second time, or kill the server: nothing that you have read is lost. Ask me to send an email, and "
    "I wait for your approval. Ask me to let you choose, and I wait for your choice. Attach an image, edit your question, ask "
    "again, fork the conversation, or tell me to fail."
)

Pause = Callable[[int], Awaitable[None]]
"""Called before each word, with its number in the answer."""


async def unhurried(word: int) -> None:
    """The pace of somebody who speaks."""
    await asyncio.sleep(0.05)


def scripted_model(pause: Pause = unhurried) -> FunctionModel:
    """A model that follows the script of this module."""

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        question, images = _question(messages)
        latest = messages[-1].parts
        results = [part for part in latest if isinstance(part, ToolReturnPart)]
        if results and not any(isinstance(part, UserPromptPart) for part in latest):
            text = " ".join(_comment(result) for result in results)
        elif "fail" in question:
            raise RuntimeError("The model is out of order.")
        elif "email" in question:
            yield _call("send_email", to="ada@example.org", subject="the meeting")
            return
        elif "choose" in question:
            yield _call("choose", question="Which colour shall it be?", options=["Red", "Green", "Blue"])
            return
        elif images:
            text = " ".join(f"I see a file of type {image.media_type} with {len(image.data)} bytes." for image in images)
        else:
            text = TOUR.format(question=question)
        for number, word in enumerate(re.findall(r"\S+\s*", text)):
            await pause(number)
            yield word

    return FunctionModel(stream_function=stream, model_name="scripted")


def _question(messages: list[ModelMessage]) -> tuple[str, list[BinaryContent]]:
    """The text and the files of the latest question."""
    asked = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)][-1].content
    contents = [asked] if isinstance(asked, str) else asked
    text = " ".join(content for content in contents if isinstance(content, str))
    return text, [content for content in contents if isinstance(content, BinaryContent)]


def _comment(result: ToolReturnPart) -> str:
    if result.outcome == "denied":
        return "All right, I do not send it."
    return f"You chose {result.content}." if result.tool_name == "choose" else str(result.content)


def _call(tool: str, **arguments: object) -> DeltaToolCalls:
    return {0: DeltaToolCall(name=tool, json_args=json.dumps(arguments), tool_call_id=f"call_{uuid4().hex}")}
