"""A model that needs no network: it says what a script makes of the items it is given."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from agents import Model, ModelResponse, Usage
from openai.types.responses import ResponseCompletedEvent
from openai.types.responses.response import Response


class Scripted(Model):
    """`answer(items)` gives the output items, in the framework's own JSON."""

    def __init__(self, answer: Callable[[list[Any]], list[Any]], response_id: str | None = None) -> None:
        self.answer, self.response_id = answer, response_id
        self.seen: list[list[Any]] = []

    async def get_response(self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        return ModelResponse(output=self._output(input), usage=Usage(), response_id=self.response_id)

    async def stream_response(self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        yield ResponseCompletedEvent(type="response.completed", response=response(self._output(input)), sequence_number=0)

    def _output(self, input: Any) -> list[Any]:
        items = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        self.seen.append(items)
        return response(self.answer(items)).output


def response(output: list[Any]) -> Response:
    """The output items, typed by the client library."""
    whole = {"id": "r", "created_at": 0, "model": "m", "object": "response", "parallel_tool_calls": False}
    return Response.model_validate({**whole, "tool_choice": "auto", "tools": [], "output": output})


def message(text: str, id: str = "msg_1") -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"type": "message", "id": id, "role": "assistant", "status": "completed", "content": content}


def call(name: str, arguments: str, call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name, "arguments": arguments}
