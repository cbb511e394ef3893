"""A message of a session log as lines of text that a person can read."""

from collections.abc import Iterator
from typing import Any

from persist.cli.output import Paint, inline, printable, shortened

_COLOURS = {"user": "green", "assistant": "cyan", "system": "magenta", "tool": "yellow"}


def message_lines(message: dict[str, Any], paint: Paint) -> Iterator[str]:
    """Who speaks and when, then what was said, whatever its shape."""
    role = str(message.get("role"))
    at = [inline(str(message[name])) for name in ("timestamp", "tool_call_id") if message.get(name) is not None]
    yield f"{paint(inline(role), fg=_COLOURS.get(role), bold=True)}  {paint('  '.join(at), dim=True)}".rstrip()
    if message.get("reasoning") is not None:
        for line in _text(message["reasoning"]):
            yield paint(f"  > {line}", dim=True)
    content = message.get("content")
    if role == "tool":
        yield f"  {shortened(content)}"
    elif content is not None:
        for line in _text(content):
            yield f"  {line}"
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        yield from _call_lines(call, paint)


def _text(value: Any) -> list[str]:
    return printable(value).split("\n") if isinstance(value, str) else [shortened(value)]


def _call_lines(call: Any, paint: Paint) -> Iterator[str]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        yield f"  tool {shortened(call)}"
        return
    yield f"  tool {paint(inline(str(function.get('name', '?'))), bold=True)}  {paint(inline(str(call.get('id', ''))), dim=True)}"
    if "arguments" in function:
        yield f"    input   {shortened(function['arguments'])}"
