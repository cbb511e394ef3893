"""Stored messages as UI message chunks: piece by piece as they grow, across any number of cursors."""

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from persist.chat.following.follower import Following, decode_cursor, encode_cursor
from persist.chat.following.rendering import IndexedPart, SentChunks, TurnSnapshot, ending_chunks, missing_chunks
from persist.chat.reducer import reduce
from persist.chat.reducer.accumulator import Accumulator
from persist.chat.schemas import TurnState
from persist.chat.storage.turns import Turn
from persist.db.values.clock import EPOCH
from persist.errors import InvalidValue, PersistError
from persist.settings import AiSdk
from tests.cases import each
from tests.streams.vectors import VECTORS, name_of

Chunk = dict[str, Any]
ODD = {
    "tool-both-kinds-one-id": "a result names its call by id alone, and two parts of one step have it",
    "dynamic-first-both-kinds": "the same",
    "tool-same-id-each-step": "the same, in two steps",
    "tool-output-in-later-step": "a result replaces another one after its step has ended",
    "reset-keeps-earlier-steps": "the same",
    "tool-delta-after-approval": "an input goes on after its approval was asked for",
    "approval-while-streaming": "an approval is asked for before the input is whole",
    "approval-answered-after-output": "an approval is answered after the call's result",
    "metadata-before-start": "a key is removed from the metadata, which no chunk does",
}
"""Streams that no SDK makes, whose messages cannot be told piece by piece, and why."""


def stored(accumulator: Accumulator) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(json.dumps(accumulator.message()))
    return message


def missing(sent: SentChunks, message: dict[str, Any], marks: list[str] | None = None, **options: Any) -> list[Chunk]:
    parts = [
        IndexedPart(index, marks[index] if marks else "", part)
        for index, part in enumerate(message["parts"])
        if index >= sent.settled
    ]
    return list(missing_chunks(sent, message.get("metadata") or {}, parts, **options))


def followed(vector: dict[str, Any], looks: Callable[[int], bool]) -> tuple[dict[str, Any], list[Chunk]]:
    """(the message at the end, what a follower was given that looked after the chunks with these places)."""
    major = vector["ai_sdk"]
    accumulator, sent, given = Accumulator(ai_sdk=major), SentChunks("m"), []
    kept = []  # so that no later part gets the id of an earlier one
    for place, chunk in enumerate(vector["chunks"]):
        try:
            accumulator.apply(chunk)
        except PersistError:
            break
        kept += accumulator.parts
        if looks(place):
            marks = [str(id(part)) for part in accumulator.parts]
            given += missing(sent, stored(accumulator), marks, ai_sdk=major)
            sent = decode_cursor(encode_cursor(sent))
    message, marks = stored(accumulator), [str(id(part)) for part in accumulator.parts]
    given += [*missing(sent, message, marks, final=True, ai_sdk=major), *ending_chunks(sent, "finish")]
    return message, given


def is_one_message(vector: dict[str, Any]) -> bool:
    """Whether one message holds all of the stream, as a follower of one message sees it."""
    places = [place for place, chunk in enumerate(vector["chunks"]) if isinstance(chunk, dict) and chunk.get("type") == "start"]
    return places in ([], [0])


def is_made_by_a_host(vector: dict[str, Any]) -> bool:
    """Whether an SDK might make the stream: random ones begin calls anew after their results, and the like."""
    return not vector["name"].startswith(("random", "spoilt")) and vector["name"] not in ODD


SOUND = [
    vector for vector in VECTORS if is_made_by_a_host(vector) and is_one_message(vector) and "previous_messages" not in vector
]


def is_multiple(every: int, place: int) -> bool:
    return place % every == 0


@each("vector", SOUND, ids=name_of)
def test_looks_at_any_moment_give_the_message(vector: dict[str, Any]) -> None:
    for every in (1, 2, 3, 1000):
        message, given = followed(vector, partial(is_multiple, every))
        rebuilt = reduce(given, ai_sdk=vector["ai_sdk"])
        assert (rebuilt["parts"], rebuilt.get("metadata") or {}) == (message["parts"], message.get("metadata") or {})


@each("vector", [v for v in VECTORS if v["name"].startswith("random")], ids=name_of)
def test_hostile_streams_lose_no_text_and_no_part(vector: dict[str, Any]) -> None:
    message, given = followed(vector, lambda place: False)
    rebuilt = reduce(given, ai_sdk=vector["ai_sdk"])
    assert (rebuilt.get("metadata") or {}) == (message.get("metadata") or {})
    assert [part["type"] for part in rebuilt["parts"]] == [part["type"] for part in message["parts"]]
    for got, wanted in zip(rebuilt["parts"], message["parts"], strict=True):
        assert "toolCallId" in wanted or got == wanted


RUNTIME: Any = SimpleNamespace(check_usable=lambda: None, settings=None, clock=lambda: EPOCH + timedelta(days=1))
DEAD = Turn("another.host/1/nonce", TurnState.RUNNING, EPOCH, "m", EPOCH, None)


def told(accumulator: Accumulator, turn: Turn | None, cursor: str | None) -> list[tuple[Chunk, str]]:
    """The chunks, each with the cursor after it, until the stream of one that has this cursor is over."""
    following = Following(RUNTIME, "s", cursor, int(accumulator.ai_sdk))
    marks = (str(id(part)) for part in accumulator.parts)
    parts = [
        IndexedPart(place, mark, part) for place, (mark, part) in enumerate(zip(marks, stored(accumulator)["parts"], strict=True))
    ]
    found = []
    while not following.over:
        first = 0 if following.cursor is None else decode_cursor(following.cursor).settled
        seen = TurnSnapshot(turn, stored(accumulator).get("metadata") or {}, tuple(part for part in parts if part.place >= first))
        found += [(chunk, following.cursor or "") for chunk in following.chunks(seen)]
    return found


def bare(given: list[tuple[Chunk, str]]) -> list[Chunk]:
    return [chunk for chunk, _ in given]


@each("vector", SOUND, ids=name_of)
def test_every_cursor_goes_on_without_a_gap_after_a_dead_recorder_and_after_the_end(vector: dict[str, Any]) -> None:
    chunks = vector["chunks"]
    for cut in sorted({1, len(chunks) // 3, 2 * len(chunks) // 3, len(chunks)} - {0}):
        accumulator, kept = Accumulator(ai_sdk=AiSdk(vector["ai_sdk"])), []  # kept, so that no later part gets the id of one
        given: list[tuple[Chunk, str]] = []
        for place, chunk in enumerate(chunks):
            try:
                accumulator.apply(chunk)
            except PersistError:
                break
            kept += accumulator.parts
            if place + 1 == cut:
                given = told(accumulator, DEAD, None)
                for end, (_, cursor) in enumerate(given, start=1):
                    assert bare(told(accumulator, DEAD, cursor)) == bare(given[end:])
        message, ends = stored(accumulator), set[str]()
        for place, (_, cursor) in enumerate(given):
            rest = told(accumulator, None, cursor)
            for end in range(max(1, len(rest) - 2), len(rest) + 1) if rest else ():
                assert bare(told(accumulator, None, rest[end - 1][1])) == bare(rest[end:])
            whole = [chunk for chunk in bare([*given[: place + 1], *rest]) if chunk["type"] != "abort"]
            types = [chunk["type"] for chunk in whole]
            assert types.count("start") == 1
            assert types[-1] == "finish" and types.count("finish") == 1 if rest else "finish" not in types
            text = json.dumps(whole)
            if text not in ends:
                ends.add(text)
                rebuilt = reduce(whole, ai_sdk=vector["ai_sdk"])
                assert (rebuilt["parts"], rebuilt.get("metadata") or {}) == (message["parts"], message.get("metadata") or {})


def test_half_a_character_waits_for_its_other_half() -> None:
    sent = SentChunks("m")
    half = {"type": "text", "text": "a\ud83d", "state": "streaming"}
    first = missing(sent, {"parts": [half]})
    second = missing(sent, {"parts": [{**half, "text": "a\U0001f600"}]})
    assert (first[-1]["delta"], second[-1]["delta"]) == ("a", "\U0001f600")


def test_an_answered_approval_has_a_chunk_in_7_alone() -> None:
    part = {
        "type": "tool-rm",
        "toolCallId": "c",
        "state": "approval-responded",
        "input": {},
        "approval": {"id": "ap", "approved": True, "reason": "fine"},
    }
    seven = missing(SentChunks("m"), {"parts": [part]}, ai_sdk=AiSdk.V7)
    six = missing(SentChunks("m"), {"parts": [part]}, ai_sdk=AiSdk.V6)
    assert seven[-1] == {"type": "tool-approval-response", "approvalId": "ap", "approved": True, "reason": "fine"}
    assert six[-1] == {"type": "tool-approval-request", "approvalId": "ap", "toolCallId": "c"}


def test_parts_that_were_taken_back_are_reset() -> None:
    start, wrong, right = (
        {"type": "step-start"},
        {"type": "text", "text": "wrong", "state": "done"},
        {"type": "text", "text": "right"},
    )
    sent = SentChunks("m")
    missing(sent, {"parts": [start, wrong]}, ["a", "b"])
    sent = decode_cursor(encode_cursor(sent))
    assert missing(sent, {"parts": [start]}, ["a"]) == [{"type": "reset-step"}]
    sent = SentChunks("m")
    missing(sent, {"parts": [start, wrong]}, ["a", "b"])
    again = missing(sent, {"parts": [start, right]}, ["a", "c"])  # another part has the place by now
    assert [chunk["type"] for chunk in again] == ["reset-step", "text-start", "text-delta", "text-end"]
    assert again[2]["delta"] == "right"


def written(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@each(
    "bad",
    [
        7,
        "",
        "?",
        "ä",
        *map(
            written,
            (
                [],
                {},
                None,
                ["", 1, 0, -1, "", []],
                ["m", 4, 0, -1, "", []],
                ["m", 6, 0, -1, "", []],
                ["m", 1, -1, -1, "", []],
                ["m", 1, 0, True, "", []],
                ["m", 1, 0, -1, 5, []],
                ["m", 1, 0, -1, "", [7]],
                ["m", 1, 0, -1, "", [["a", [5, ""]]]],
                ["m", 1, 0, -1, "", [["a", [0, ""]]]],
            ),
        ),
    ],
)
def test_text_that_is_no_cursor_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidValue):
        decode_cursor(bad)


def test_a_cursor_of_a_long_message_is_short() -> None:
    parts: list[dict[str, Any]] = []
    for number in range(500):
        parts += [{"type": "step-start"}, {"type": "text", "text": "x" * 100, "state": "done"}]
        parts.append({"type": "tool-w", "toolCallId": f"c{number}", "state": "output-available", "input": 1, "output": 2})
    sent = SentChunks("m")
    missing(sent, {"parts": parts})
    assert len(encode_cursor(sent)) < 200
