"""A chat's messages as a page shows them: each with its instant and its cost, and its parts by what they are to a reader."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from persist.chat.schemas import STOPPED_AT, ChatMessage, UIMessage
from persist.chat.storage.usage import COMPACTION, usage_of
from persist.ui.trees import indented
from persist.ui.views import TEXT_AT_FIRST
from persist.usage.schemas import UsageCall

_MICROS = 1_000_000
_LEAST = 1_000
_VALUES = ("input", "output")
_NAMES = ("url", "title", "filename", "mediaType")


@dataclass(frozen=True, slots=True)
class Spent:
    """What one step, or one message, took. `cost`: in US dollars, None where nobody told."""

    tokens: int
    read: int
    written: int
    cost: float | None


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message as it is shown. `live`: a turn writes it now. `shared`: a fork took it over from its parent."""

    id: str
    role: str
    at: datetime | None
    parts: list[dict[str, Any]]
    metadata: dict[str, Any]
    spent: Spent | None
    live: bool = False
    shared: bool = False
    waits: bool = False

    @property
    def is_hidden(self) -> bool:
        """Whether a rewind or a cancellation took it back."""
        return self.metadata.get("hidden_at") is not None

    @property
    def was_stopped(self) -> bool:
        """Whether somebody stopped the answer before it was whole."""
        return self.metadata.get(STOPPED_AT) is not None


class Room:
    """How much text a page still takes: of each text there is at least the beginning, of all of them what a page can bear."""

    def __init__(self, characters: int | None = 8 * TEXT_AT_FIRST) -> None:
        self._left = characters

    def take(self, text: str) -> tuple[str, int]:
        """The beginning of a text that is shown, and how many characters are left out."""
        if self._left is None:
            return text, 0
        shown = text[: max(_LEAST, min(TEXT_AT_FIRST, self._left))]
        self._left -= len(shown)
        return shown, len(text) - len(shown)


class Steps:
    """What the steps of a session's answers took, as far as its window of calls remembers them."""

    def __init__(self, calls: Sequence[UsageCall]) -> None:
        self._calls = {call.source: call for call in calls if call.source is not None}

    def of(self, message_id: str, step: int) -> Spent | None:
        """What a step of a message took, None where nobody knows."""
        call = self._calls.get(f"step:{message_id}:{step}")
        if call is None:
            return None
        read = (call.token_input or 0) + (call.token_cache_read or 0) + (call.token_cache_write or 0)
        cost = None if call.cost_usd_micros is None else call.cost_usd_micros / _MICROS
        return Spent(read + (call.token_output or 0), read, call.token_output or 0, cost)


def message_shown(
    message: UIMessage, row: ChatMessage | None, steps: Steps, room: Room, *, live: bool = False, before: datetime | None = None
) -> ShownMessage:
    """A message as it is shown. `row`: its row, if it can be read; `before`: what is older was taken over from a parent."""
    metadata = message.get("metadata") or {}
    parts = list(_parts(message, steps, room))
    costs = [part["spent"].cost for part in parts if part["kind"] == "step" and part["spent"] is not None]
    known = [cost for cost in costs if cost is not None]
    counts = usage_of(metadata)
    read = counts["input"] + counts["cache_read"] + counts["cache_write"]
    spent = Spent(sum(counts.values()), read, counts["output"] + counts["reasoning"], sum(known) if known else None)
    at = None if row is None else row.created_at
    return ShownMessage(
        message["id"],
        str(message["role"]),
        at,
        parts,
        metadata,
        spent if spent.tokens or spent.cost is not None else None,
        live=live,
        shared=at is not None and before is not None and at < before,
        waits=metadata.get("queued_at") is not None,
    )


def _parts(message: UIMessage, steps: Steps, room: Room) -> Iterator[dict[str, Any]]:
    step = 0
    for place, part in enumerate(message["parts"]):
        if part.get("type") == "step-start":
            yield {"kind": "step", "place": place, "number": step + 1, "spent": steps.of(message["id"], step)}
            step += 1
        else:
            yield {"place": place, **_part(part, message["id"], place, room)}


def _part(part: Mapping[str, Any], message_id: str, place: int, room: Room) -> dict[str, Any]:
    kind = part.get("type")
    if kind in ("text", "reasoning"):
        return {"kind": kind, "streams": part.get("state") == "streaming", **_cut(part.get("text"), room)}
    if isinstance(kind, str) and (kind.startswith("tool-") or kind == "dynamic-tool"):
        return _tool(part, kind, room)
    if kind in ("file", "reasoning-file"):
        return {"kind": "file", **_file(part, message_id, place)}
    if kind in ("source-url", "source-document"):
        return {"kind": "source", **_source(part)}
    data = part.get("data")
    if kind == COMPACTION and isinstance(data, dict):
        number = data.get("summary_tokens")
        return {"kind": "compaction", "auto": data.get("auto") is True, "tokens": number, **_cut(data.get("summary"), room)}
    if kind == "steering-message":
        said = part.get("parts")
        inside = [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []
        return {
            "kind": "steering",
            "parts": [_part(one, message_id, place, room) for one in inside if one.get("type") in ("text", "file")],
        }
    value = data if "data" in part else {name: one for name, one in part.items() if name != "type"}
    return {"kind": "other", "type": str(kind or "?"), "value": value}


def _cut(value: object, room: Room) -> dict[str, Any]:
    """A text as much of it as is shown; `all` of one that grows, of which the end is shown."""
    text = _text(value)
    shown, left = room.take(text)
    return {"text": shown, "left": left, "all": text}


def _value(value: Any, room: Room) -> dict[str, Any]:
    return _cut(value, room) if isinstance(value, str) else {"text": None, "value": value}


def _tool(part: Mapping[str, Any], kind: str, room: Room) -> dict[str, Any]:
    approval = part.get("approval")
    name = part.get("toolName") if kind == "dynamic-tool" else kind.removeprefix("tool-")
    raw = part.get("rawInput")
    raw = raw if isinstance(raw, str) and ("input" not in part or part.get("state") == "input-streaming") else None
    return {
        "kind": "tool",
        "name": _text(name) or "?",
        "title": part.get("title") if isinstance(part.get("title"), str) else None,
        "state": _text(part.get("state")) or "?",
        "call": _text(part.get("toolCallId")),
        "values": [(key, _value(part[key], room)) for key in _VALUES if key in part and (raw is None or key != "input")],
        "raw": raw,
        "error": _text(part.get("errorText")) if "errorText" in part else None,
        "preliminary": part.get("preliminary") is True,
        "approval": approval if isinstance(approval, dict) else None,
    }


def _file(part: Mapping[str, Any], message_id: str, place: int) -> dict[str, Any]:
    """A file. `of`: where its bytes are: in a `blob`, in the `message`, or `elsewhere`, from where nothing is fetched."""
    url, name, type, of = _text(part.get("url")), _text(part.get("filename")), _text(part.get("mediaType")), "elsewhere"
    digest = url.removeprefix("persist-blob:")
    if digest != url:
        of = "blob"
    elif url[:5].lower() == "data:":
        of = "message"
    return {
        "of": of,
        "digest": digest,
        "message": message_id,
        "name": name,
        "type": type,
        "href": web_address(url),
        "url": url[:200],
    }


def _source(part: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: _text(part.get(name)) for name in _NAMES}
    url = named["url"]
    return {"title": named["title"] or named["filename"] or url or "?", "href": web_address(url), "note": named["mediaType"]}


def web_address(url: str) -> str | None:
    """The address, if a reader may follow it: only http and https lead nowhere else than to a page."""
    return url if url[:8].lower().startswith(("http://", "https://")) else None


def _text(value: object) -> str:
    """Text as it is; what another program stored in its place, as text."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def as_markdown(title: str, messages: Sequence[UIMessage]) -> str:
    """A whole transcript as one Markdown document, tools folded into code blocks."""
    return "\n".join([f"# {' '.join(title.split())}", *(line for message in messages for line in _document(message))]) + "\n"


def _document(message: UIMessage) -> Iterator[str]:
    yield f"\n## {message['role']}"
    for part in _parts(message, Steps(()), Room(None)):
        match part["kind"]:
            case "text":
                yield f"\n{part['text']}"
            case "reasoning":
                yield "\n" + "\n".join(f"> {line}" for line in part["text"].split("\n"))
            case "tool":
                yield f"\n**{part['name']}** ({part['state']})"
                for word, value in part["values"]:
                    yield f"\n{word}\n\n{_fenced(value['value'] if value['text'] is None else value['text'])}"
                if part["error"]:
                    yield f"\nerror\n\n{_fenced(part['error'])}"
            case "file":
                yield f"\nFile: {part['name'] or part['type']}" + (f" <{part['href']}>" if part["href"] else "")
            case "source":
                yield f"\nSource: {part['title']}" + (f" <{part['href']}>" if part["href"] else "")
            case "compaction":
                yield f"\n### What came before, summed up\n\n{part['text']}"
            case "steering":
                yield from (f"\nSaid meanwhile: {one['text']}" for one in part["parts"] if one["kind"] == "text")
            case "other":
                yield f"\n{part['type']}\n\n{_fenced(part['value'])}"


def _fenced(value: object) -> str:
    """A value in a block of code whose fence is longer than any inside of it."""
    text, language = (value, "") if isinstance(value, str) else (indented(value), "json")
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
