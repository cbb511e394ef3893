"""Messages as agents make them, and what a message says to a test."""

from datetime import UTC, datetime
from typing import Any

from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)


def asked(text: Any) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text, timestamp=AT)])


def answered(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)], timestamp=AT)


def called(args: Any) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart("tool", args, tool_call_id="call")], timestamp=AT)


def returned(content: Any, **more: Any) -> ModelRequest:
    return ModelRequest(parts=[ToolReturnPart("tool", content, tool_call_id="call", timestamp=AT)], **more)


def turns(*words: str) -> list[ModelMessage]:
    """A question and an answer for each word."""
    return [message for word in words for message in (asked(word), answered(f"{word}!"))]


def conversation(id: str, *words: str) -> Conversation:
    return Conversation(conversation_id=id, messages=turns(*words))


def said(messages: list[ModelMessage]) -> list[Any]:
    """What messages say, without what the framework makes anew for each."""
    return [part.content for message in messages for part in message.parts]  # type: ignore[union-attr]  # parts with content


def plain(messages: list[ModelMessage]) -> Any:
    return ModelMessagesTypeAdapter.dump_python(messages, mode="json")
