"""Messages of session logs and of transcripts, as a page shows them: who said what when, and what tools were called.

What a line of a log holds may be of any kind, since any program may have written it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from persist.sessionlog import messages_of
from persist.sessionlog.envelope import instant_of

_SPEAKERS = ("user", "assistant", "system", "tool")
MOST = 16 * 1024
"""How many characters of one text a list of messages shows; the rest has a page of its own."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of what was said. `kind`: markdown, text, reasoning, or tree for a value. `left`: how many characters it lacks."""

    kind: str
    value: Any
    left: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that was called, or by `verb` something else that was done."""

    name: str
    id: str | None
    input: Piece | None
    verb: str = "calls"


@dataclass(frozen=True, slots=True)
class Said:
    """One message. `place`: its line or entry. `speaker`: what chooses its looks, `role` how it is named."""

    place: int
    role: str
    speaker: str
    at: datetime | None = None
    about: str | None = None
    pieces: list[Piece] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)


def said_in(line: Mapping[str, Any], place: int, *, whole: bool = False) -> list[Said]:
    """What a line of a log says: its messages, or how the run ended. `whole`: with texts of any length."""
    if line.get("type") == "result" and not isinstance(line.get("role"), str):
        return [_result(line, place, whole)]
    return [_message(message, place, whole) for message in messages_of(line)]


def _message(message: Mapping[str, Any], place: int, whole: bool) -> Said:
    role = str(message.get("role"))
    calls, about = message.get("tool_calls"), message.get("model") or message.get("tool_call_id")
    return Said(
        place,
        role,
        role if role in _SPEAKERS else "other",
        instant_of(message.get("timestamp")),
        about if isinstance(about, str) else None,
        [
            *pieces_of(message.get("reasoning"), "reasoning", whole),
            *pieces_of(message.get("content"), "text" if role == "tool" else "markdown", whole),
        ],
        [_call(call, whole) for call in calls] if isinstance(calls, list) else [],
    )


def pieces_of(content: Any, kind: str, whole: bool = False) -> Iterator[Piece]:
    """Text as text; of blocks their texts, and what is no text as a value."""
    if isinstance(content, str):
        left = 0 if whole else max(0, len(content) - MOST)
        if content:
            yield Piece(kind if len(content) <= MOST else "text", content[: len(content) - left], left)
    elif isinstance(content, list):
        for block in content:
            text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else block
            if isinstance(text, str):
                yield from pieces_of(text, kind, whole)
            else:
                yield Piece("tree", block)
    elif content is not None:
        yield Piece("tree", content)


def _call(call: Any, whole: bool) -> Call:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return Call("?", None, Piece("tree", call))
    given, id = function.get("arguments"), call.get("id")
    if isinstance(given, str):
        given = value_of(given)
    return Call(str(function.get("name", "?")), id if isinstance(id, str) else None, next(pieces_of(given, "text", whole), None))


def value_of(text: str) -> Any:
    """The value that a text of JSON holds; the text itself where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _result(line: Mapping[str, Any], place: int, whole: bool) -> Said:
    """The line with which a run ends: how, after what, and what it cost."""
    counts = (
        ("turns", "num_turns", "{:,}"),
        ("cost", "total_cost_usd", "${:,.4f}"),
        ("input tokens", "total_input_tokens", "{:,}"),
        ("output tokens", "total_output_tokens", "{:,}"),
        ("milliseconds", "duration_ms", "{:,}"),
    )
    facts = [(word, form.format(line[name])) for word, name, form in counts if type(line.get(name)) in (int, float)]
    stopped = [("stopped by", value) for name in ("stop_reason",) if isinstance(value := line.get(name), str)]
    ended = line.get("subtype")
    about = ended if isinstance(ended, str) else None
    pieces = list(pieces_of(line.get("result"), "markdown", whole))
    return Said(place, "end of the run", "result", instant_of(line.get("timestamp")), about, pieces, facts=facts + stopped)
