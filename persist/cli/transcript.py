"""A UI message as lines of text that a person can read."""

from collections.abc import Iterator
from typing import Any

from persist.chat.schemas import UIMessage
from persist.cli.output import Paint, inline, printable, shortened

_COLOURS = {"user": "green", "assistant": "cyan", "system": "magenta"}
_STATES = {"output-available": "green", "output-error": "red", "output-denied": "red"}


def message_lines(message: UIMessage, paint: Paint) -> Iterator[str]:
    """Who speaks, then every part in order."""
    role = str(message["role"])
    note = " (hidden)" if message.get("metadata", {}).get("hidden_at") is not None else ""
    yield f"{paint(role, fg=_COLOURS.get(role), bold=True)}  {paint(inline(message['id']) + note, dim=True)}"
    step = 0
    for part in message["parts"]:
        kind = part.get("type")
        if kind == "step-start":
            step += 1
            yield paint(f"  -- step {step}", dim=True)
        elif kind in ("text", "reasoning"):
            yield from _text_lines(part, paint, reasoning=kind == "reasoning")
        elif isinstance(kind, str) and (kind.startswith("tool-") or kind == "dynamic-tool"):
            yield from _tool_lines(part, paint)
        else:
            yield from _other_lines(part, paint)


def _text_lines(part: dict[str, Any], paint: Paint, *, reasoning: bool) -> Iterator[str]:
    lines = printable(str(part.get("text", ""))).split("\n")
    if part.get("state") == "streaming":
        lines[-1] += " … (not finished)"
    for line in lines:
        yield paint(f"  > {line}", dim=True) if reasoning else f"  {line}"


def _tool_lines(part: dict[str, Any], paint: Paint) -> Iterator[str]:
    kind, state = part["type"], inline(str(part.get("state", "?")))
    name = part.get("toolName", "?") if kind == "dynamic-tool" else kind.removeprefix("tool-")
    running = " (preliminary)" if part.get("preliminary") else ""
    call = paint(inline(str(part.get("toolCallId", ""))), dim=True)
    yield f"  tool {paint(inline(str(name)), bold=True)}  {paint(state + running, fg=_STATES.get(state, 'yellow'))}  {call}"
    if "input" in part:
        yield f"    input   {shortened(part['input'])}"
    elif "rawInput" in part:
        yield f"    input   {shortened(part['rawInput'])} (as it came)"
    approval = part.get("approval")
    if isinstance(approval, dict):
        yield f"    approval {shortened(approval)}"
    if "output" in part:
        yield f"    output  {shortened(part['output'])}"
    if "errorText" in part:
        yield f"    error   {paint(shortened(part['errorText']), fg='red')}"


def _other_lines(part: dict[str, Any], paint: Paint) -> Iterator[str]:
    kind = inline(str(part.get("type", "?")))
    match kind:
        case "source-url":
            shown = _words(part, "title", "url")
        case "source-document":
            shown = _words(part, "title", "filename", "mediaType")
        case "file":
            shown = _words(part, "filename", "mediaType", "url")
        case _:
            shown = shortened(part.get("data", {name: value for name, value in part.items() if name != "type"}))
    yield f"  {paint(kind, fg='blue')}  {shown}"


def _words(part: dict[str, Any], *names: str) -> str:
    return "  ".join(shortened(part[name], 120) for name in names if part.get(name))
