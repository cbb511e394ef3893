"""Stored messages as UI message chunks: whole, and piece by piece as they grow, across any number of cursors."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from persist.chat.following.cursor import decode_cursor, encode_cursor
from persist.chat.following.rendering import Sent, ending_chunks, missing_chunks
from persist.chat.reducer import reduce
from persist.chat.reducer.accumulator import Accumulator
from persist.errors import InvalidValue, PersistError
from tests.contract.chat.scenes import VECTORS

Chunk = dict[str, Any]
TWO_CALLS_OF_ONE_ID = {"tool-both-kinds-one-id", "dynamic-first-both-kinds", "tool-same-id-each-step"}
"""A result names its call by id alone, and two parts of one step have it."""
OUT_OF_ORDER = {"tool-output-in-later-step", "tool-delta-after-approval"}
"""A result replaces another one after its step has ended, or an input goes on after its approval was asked for."""
NAMED = [vector for vector in VECTORS if not vector["name"].startswith("random")]


def stored(accumulator: Accumulator) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(json.dumps(accumulator.message()))
    return message


def missing(sent: Sent, message: dict[str, Any], *, final: bool = False) -> list[Chunk]:
    parts = [(index, part) for index, part in enumerate(message["parts"]) if index >= sent.settled]
    return list(missing_chunks(sent, message.get("metadata") or {}, parts, len(message["parts"]), final=final))


def followed(chunks: Iterable[Chunk], look: Callable[[int], bool]) -> tuple[dict[str, Any], list[Chunk]]:
    """(the message at the end, what a follower was given that looked after the chunks with these places)."""
    accumulator, sent, given = Accumulator(), Sent("m"), []
    for place, chunk in enumerate(chunks):
        try:
            accumulator.apply(chunk)
        except PersistError:
            break
        if look(place):
            given += missing(sent, stored(accumulator))
            sent = decode_cursor(encode_cursor(sent))
    message = stored(accumulator)
    given += [*missing(sent, message, final=True), *ending_chunks(sent, "finish")]
    return message, given


def rebuilt(chunks: list[Chunk]) -> tuple[Any, Any]:
    message = reduce(chunks)
    return message["parts"], message.get("metadata") or {}


def has_one_message(vector: dict[str, Any]) -> bool:
    """Whether one message holds all of the stream, as a follower of one message sees it."""
    places = [place for place, chunk in enumerate(vector["chunks"]) if chunk.get("type") == "start"]
    return places in ([], [0])


@pytest.mark.parametrize("vector", [v for v in NAMED if v["name"] not in TWO_CALLS_OF_ONE_ID | OUT_OF_ORDER], ids=lambda vector: vector["name"])
def test_the_chunks_of_a_message_rebuild_it(vector: dict[str, Any]) -> None:
    message, given = followed(vector["chunks"], lambda place: False)
    assert rebuilt(given) == (message["parts"], message.get("metadata") or {})


@pytest.mark.parametrize(
    "vector",
    [v for v in NAMED if has_one_message(v) and v["name"] not in TWO_CALLS_OF_ONE_ID | OUT_OF_ORDER],
    ids=lambda vector: vector["name"],
)
def test_looks_at_every_chunk_give_the_same_message(vector: dict[str, Any]) -> None:
    for every in (1, 2, 3):
        message, given = followed(vector["chunks"], lambda place, every=every: place % every == 0)
        assert rebuilt(given) == (message["parts"], message.get("metadata") or {})


@pytest.mark.parametrize("vector", [v for v in VECTORS if v["name"].startswith("random")], ids=lambda vector: vector["name"])
def test_hostile_streams_lose_no_text_and_no_part(vector: dict[str, Any]) -> None:
    message, given = followed(vector["chunks"], lambda place: False)
    parts, metadata = rebuilt(given)
    assert metadata == (message.get("metadata") or {})
    assert [part["type"] for part in parts] == [part["type"] for part in message["parts"]]
    for got, wanted in zip(parts, message["parts"], strict=True):
        if "toolCallId" not in wanted:
            assert got == wanted


def test_text_is_sent_once() -> None:
    sent = Sent("m")
    part = {"type": "text", "text": "ab", "state": "streaming"}
    first = missing(sent, {"parts": [part]})
    again = missing(sent, {"parts": [part]})
    more = missing(sent, {"parts": [{**part, "text": "abcd", "state": "done"}]})
    assert [chunk["type"] for chunk in first] == ["start", "text-start", "text-delta"]
    assert again == []
    assert more == [{"type": "text-delta", "id": "text-0", "delta": "cd"}, {"type": "text-end", "id": "text-0"}]


def test_half_a_character_waits_for_its_other_half() -> None:
    sent = Sent("m")
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
    seven = list(missing_chunks(Sent("m"), {}, [(0, part)], 1, ai_sdk=7))
    six = list(missing_chunks(Sent("m"), {}, [(0, part)], 1, ai_sdk=6))
    assert seven[-1] == {"type": "tool-approval-response", "approvalId": "ap", "approved": True, "reason": "fine"}
    assert six[-1] == {"type": "tool-approval-request", "approvalId": "ap", "toolCallId": "c"}


def test_parts_that_were_taken_back_are_reset() -> None:
    sent = Sent("m")
    start = {"type": "step-start"}
    draft = {"type": "text", "text": "wrong", "state": "streaming"}
    missing(sent, {"parts": [start, draft]})
    chunks = list(missing_chunks(sent, {}, [(0, start)], 1))
    assert chunks == [{"type": "reset-step"}]
    assert missing(sent, {"parts": [start, {**draft, "text": "right"}]})[-1]["delta"] == "right"


@pytest.mark.parametrize("bad", [7, "", "?", "e30", "bnVsbA", "WyJtIiw4LDAsIiIsW11d", "WyJtIiwxLC0xLCIiLFtdXQ", "WyIiLDEsMCwiIixbXV0", "ä"])
def test_text_that_is_no_cursor_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidValue):
        decode_cursor(bad)


def test_a_cursor_of_a_long_message_is_short() -> None:
    parts = []
    for number in range(500):
        parts += [{"type": "step-start"}, {"type": "text", "text": "x" * 100, "state": "done"}]
        parts.append({"type": "tool-w", "toolCallId": f"c{number}", "state": "output-available", "input": 1, "output": 2})
    sent = Sent("m")
    missing(sent, {"parts": parts})
    assert len(encode_cursor(sent)) < 200
