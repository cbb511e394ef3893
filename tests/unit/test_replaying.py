"""A stored message becomes chunks again, and the real reducers of both majors rebuild it from them."""

import json
from typing import Any, Literal, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist.chat.following.rendering import IndexedPart, SentChunks, missing_chunks
from persist.chat.recording.draft import Unfolded
from persist.chat.reducer import reduce
from persist.chat.reducer.chunks import ONLY_IN_7, ChunkType, validate
from persist.chat.reducer.parts import LONG, PartState
from persist.chat.reducer.replaying import chunks_of
from persist.db.values.json import JsonFrame
from persist.errors import InvalidValue
from persist.settings import AiSdk, Settings
from tests.cases import each
from tests.streams.replaying import FILE, replays
from tests.streams.vectors import VECTORS, cases, name_of

VERDICTS: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
REPLAYS = list(replays())
every_replay = each("replay", REPLAYS, ids=lambda replay: replay["name"])

CALL = {"type": "tool-input-available", "toolCallId": "c", "toolName": "search"}

# a stored message had two data parts of one id; two kinds of call had one id; a part lost what it was streamed with
ODD = {"6-resume-data-and-metadata", "6-tool-both-kinds-one-id", "7-random-15"}


def beyond(message: dict[str, Any], major: int) -> bool:
    """Whether the message has what no chunk of that major says: for 7 an input refused by 6, for 6 what only 7 has."""
    for part in message["parts"]:
        if major == AiSdk.V7 and part.get("state") == "output-error" and "rawInput" in part and "input" not in part:
            return True
        if major == AiSdk.V6 and (
            "citations" in part or {"approved", "requestReason", "isAutomatic"} & part.get("approval", {}).keys()
        ):
            return True
    return False


@every_replay
def test_the_real_reducers_rebuild_the_message(replay: dict[str, Any]) -> None:
    found = VERDICTS[replay["name"]]
    assert replay["digest"] == found["digest"], "run replays.mjs again: see tests/streams/README.md"
    apart = replay["name"].split()[0] in ODD or beyond(replay["message"], replay["major"])
    assert found["rebuilt"] or apart
    denied = any(part.get("state") == "output-denied" for part in replay["message"]["parts"])
    assert found["valid"] or (denied and replay["major"] == AiSdk.V6)  # 6 has no chunk that says who denied it


@every_replay
def test_the_reducer_says_the_same_as_the_real_one(replay: dict[str, Any]) -> None:
    major: Literal[6, 7] = replay["major"]
    assert all(validate(chunk, AiSdk(major)) is not None for chunk in replay["chunks"])
    rebuilt = reduce(replay["chunks"], ai_sdk=major)
    assert (rebuilt == replay["message"]) == VERDICTS[replay["name"]]["rebuilt"]


@each("vector", VECTORS, ids=name_of)
@pytest.mark.parametrize("major", [6, 7])
def test_what_was_cut_off_or_hostile_is_replayed_without_an_error(vector: dict[str, Any], major: Literal[6, 7]) -> None:
    for cut in vector["cuts"]:
        chunks = chunks_of(cut["message"], ai_sdk=AiSdk(major), finished=False)
        assert [chunk["type"] for chunk in chunks].count("finish") == 0
        rebuilt = reduce(chunks, ai_sdk=major)
        again = chunks_of(rebuilt, ai_sdk=AiSdk(major), finished=False)
        assert reduce(again, ai_sdk=major) == rebuilt


_RESULTS: list[dict[str, Any]] = [
    {"type": "tool-output-available", "toolCallId": "c", "output": {"n": 1}, "preliminary": True},
    {"type": "tool-output-available", "toolCallId": "c", "output": None, "providerMetadata": {"p": {}}},
    {"type": "tool-output-error", "toolCallId": "c", "errorText": "no"},
]
_ASKED: dict[str, Any] = {"type": "tool-approval-request", "toolCallId": "c", "approvalId": "a"}
_ANSWERS: list[list[dict[str, Any]]] = [
    [],
    [{"type": "tool-approval-response", "approvalId": "a", "approved": True}],
    [{"type": "tool-output-denied", "toolCallId": "c"}],
    [{"type": "tool-output-available", "toolCallId": "c", "output": 2}],
]


@each("chunks", [[first, _ASKED, *later] for first in _RESULTS for later in _ANSWERS])
def test_a_result_that_is_there_before_an_approval_is_asked_is_replayed_and_followed(chunks: list[dict[str, Any]]) -> None:
    chunks = [{"type": "start", "messageId": "m"}, {**CALL, "input": {"x": 1}}, *chunks]
    assert reduce(chunks_of(reduce(chunks))) == reduce(chunks)
    sent, given = SentChunks("m"), list[dict[str, Any]]()
    for end in range(1, len(chunks) + 1):
        parts = [IndexedPart(place, "mark", part) for place, part in enumerate(reduce(chunks[:end])["parts"])]
        given += missing_chunks(sent, {}, parts)
    assert [chunk["type"] for chunk in given] == [chunk["type"] for chunk in chunks]
    assert reduce(given) == reduce(chunks)


KEYS = ["type", "text", "state", "input", "rawInput", "toolCallId", "approval", "id", "data", "errorText", "inputEncoding"]
VALUES = st.one_of(
    st.none(),
    st.sampled_from(["tool-w", "dynamic-tool", "text", "data-x", "output-error", "output-available", "input-streaming", "[-"]),
    st.fixed_dictionaries({"id": st.sampled_from(["a", 5, None]), "approved": st.sampled_from([True, False, None, 1])}),
    st.integers(-1, 1),
)


@given(st.lists(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=7), max_size=4), st.sampled_from(AiSdk))
def test_whatever_is_stored_is_replayed_without_an_error(parts: list[dict[str, Any]], major: AiSdk) -> None:
    known = [part for part in parts if isinstance(part.get("type"), str)]
    assert chunks_of({"id": "m", "role": "assistant", "parts": known}, ai_sdk=major)[0]["type"] == "start"


# When growing text is folded: by size as rarely as its length allows, by the clock once nothing more comes.


SETTINGS = Settings()
FOLD = SETTINGS.fold_ms / 1000
PIECE = 20


class Time:
    """Monotonic seconds that a test counts."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    fake = Time()
    monkeypatch.setattr("persist.chat.recording.draft.time", fake)
    return fake


def part_of(base: int) -> PartState:
    """A stored part of so many bytes; a long one is held by the database alone."""
    part = PartState({"type": "text", "text": ""})
    part.id, part.base = "p", base
    part.frame = JsonFrame({"text": ""}, "text") if base >= LONG else None
    return part


LENGTHS = [0, 10_000, 200_000, 2**20, 16 * 2**20]


@pytest.mark.parametrize("base", LENGTHS)
def test_a_stream_that_stalls_is_due_once_nothing_came_for_fold_ms(time: Time, base: int) -> None:
    unfolded, part = Unfolded(SETTINGS), part_of(base)
    for _ in range(5):
        unfolded.delta_stored(part, PIECE)
        time.now += FOLD / 10
    assert unfolded.due() <= time.now - FOLD / 10 + FOLD


@pytest.mark.parametrize("base", LENGTHS)
def test_what_keeps_coming_waits_no_longer_than_its_length_asks(time: Time, base: int) -> None:
    unfolded, part = Unfolded(SETTINGS), part_of(base)
    began = time.now
    unfolded.delta_stored(part, PIECE)
    while unfolded.due() > time.now:
        unfolded.delta_stored(part, 0)
        time.now += FOLD / 10
    share = 4 if part.frame else 8
    assert time.now - began == pytest.approx(FOLD * max(1, base / share / SETTINGS.fold_bytes), abs=FOLD / 5)


def cost(time: Time, pieces: int, seconds: float) -> int:
    """Bytes that folds write for a part of so many pieces, which come that far apart."""
    unfolded, part = Unfolded(SETTINGS), part_of(0)
    written = 0
    for _ in range(pieces):
        if unfolded and unfolded.due() <= time.now:
            unfolded.folded()
            written += part.base
        if unfolded.should_fold(part, PIECE):
            unfolded.part_stored(part)
            written += part.base + PIECE
        else:
            unfolded.delta_stored(part, PIECE)
        part.base += PIECE
        time.now += seconds
    return written


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.05, FOLD / 2])
def test_twice_the_length_costs_twice_the_bytes_while_it_keeps_coming(time: Time, seconds: float) -> None:
    assert cost(time, 20_000, seconds) <= 2.5 * cost(time, 10_000, seconds)


# validate against the real uiMessageChunkSchema; only unknown types are told apart instead of refused.


CASES = cases("chunk_validation")
KNOWN = {AiSdk.V6: set(ChunkType) - ONLY_IN_7, AiSdk.V7: set(ChunkType)}


@each("ai_sdk", AiSdk)
def test_the_vectors_cover_every_type(ai_sdk: AiSdk) -> None:
    accepted = {case["chunk"]["type"] for major, case in CASES if major == ai_sdk and case["accepted"]}
    assert accepted >= KNOWN[ai_sdk]


@each(
    "chunk",
    [
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "w"},
        {"type": "tool-input-error", "toolCallId": "c", "toolName": "w", "errorText": "e"},
        {"type": "tool-output-available", "toolCallId": "c"},
        {"type": "data-status", "id": "x"},
        {"type": "message-metadata"},
    ],
    ids=lambda chunk: str(chunk["type"]),
)
def test_a_missing_payload_of_unknown_type_is_accepted(chunk: dict[str, Any]) -> None:
    assert validate(chunk) == chunk["type"]


@each(
    ("chunk", "path"),
    [
        ({"type": "text-delta", "id": "t"}, "text-delta.delta"),
        ({"type": "text-delta", "id": None, "delta": "x"}, "text-delta.id"),
        ({"type": "finish", "finishReason": "bored"}, "finish.finishReason"),
        ({"type": "data-x", "data": 1, "id": 5}, "data-x.id"),
        ({"type": 5}, "type"),
        ({}, "type"),
        (["text-start"], "chunk"),
        (None, "chunk"),
    ],
    ids=str,
)
def test_the_error_names_the_field(chunk: object, path: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        validate(cast("dict[str, Any]", chunk))
    assert caught.value.path == path
