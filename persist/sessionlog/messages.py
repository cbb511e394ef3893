"""Converting lines of a log into messages of a conversation. Pure, without files."""

import json
from collections.abc import Mapping
from typing import Any

from persist.sessionlog.records import read_line

Message = dict[str, Any]


def messages_of(line: Mapping[str, Any]) -> list[Message]:
    """The messages of a line: dicts of `role`, `content` and other keys present (`timestamp`, `model`, `tool_calls`, …).

    A line with a `role` is a message already. `result`, `system` and unknown lines have no messages. A user line with tool
    results has one message for each, and its text beside them is left out.
    """
    if isinstance(line.get("role"), str):
        return [dict(line)]
    stamp = {"timestamp": line["timestamp"]} if line.get("timestamp") is not None else {}
    match line.get("type"):
        case "user":
            return [message | stamp for message in _of_user(line)]
        case "assistant":
            return [message | stamp for message in _of_assistant(line)]
    return []


def _of_user(line: Mapping[str, Any]) -> list[Message]:
    content = _body(line).get("content")
    if content is None:
        content = line.get("content")
    if isinstance(content, list):
        results = [block for block in content if isinstance(block, dict) and block.get("type") == "tool_result"]
        if results:
            return [
                _without_none({"role": "tool", "content": b.get("content"), "tool_call_id": b.get("tool_use_id")})
                for b in results
            ]
    return [_without_none({"role": "user", "content": content})]


def _of_assistant(line: Mapping[str, Any]) -> list[Message]:
    error = line.get("error")
    if line.get("isApiErrorMessage") or error:
        return [{"role": "system", "content": "API error" if error is None else _text(error)}]
    body = _body(line)
    content = body.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    texts = [block["text"] for block in blocks if block.get("type") == "text" and isinstance(block.get("text"), str)]
    calls = [
        {"id": block.get("id"), "function": {"name": block.get("name"), "arguments": block.get("input")}}
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    text = content if isinstance(content, str) else "\n".join(texts)
    if not text and not calls:
        return []
    return [
        _without_none(
            {
                "role": "assistant",
                "content": text if texts or text else None,
                "tool_calls": calls or None,
                "reasoning": _reasoning(blocks),
                "finish_reason": body.get("stop_reason"),
                "model": body.get("model"),
            }
        )
    ]


def _reasoning(blocks: list[dict[str, Any]]) -> Any:
    thoughts = [block for block in blocks if block.get("type") in ("thinking", "reasoning")]
    if not thoughts:
        return None
    last = thoughts[-1]
    return last["thinking"] if last.get("thinking") is not None else last.get("text")


def _body(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message in a line. Some writers store it as text: as JSON, or as the content itself."""
    message = line.get("message")
    if isinstance(message, str):
        inner, torn = read_line(message.encode(errors="surrogatepass"))
        return {"content": message} if torn or len(inner) != 1 else inner[0]
    return message if isinstance(message, dict) else {}


def _without_none(message: Message) -> Message:
    return {name: value for name, value in message.items() if value is not None}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
