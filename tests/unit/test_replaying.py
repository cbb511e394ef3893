"""A stored message becomes chunks again, and the real reducers of both majors rebuild it from them."""

import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist.chat.following.rendering import IndexedPart, SentChunks, missing_chunks
from persist.chat.reducer import reduce
from persist.chat.reducer.chunks import validate
from persist.chat.reducer.replaying import chunks_of
from persist.errors import InvalidValue
from persist.settings import AiSdk
from tests.cases import each
from tests.streams.replaying import FILE, replays
from tests.streams.vectors import VECTORS, name_of

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


def test_a_running_message_has_no_end() -> None:
    message = {
        "id": "m",
        "role": "assistant",
        "parts": [{"type": "step-start"}, {"type": "text", "text": "Hel", "state": "streaming"}],
    }
    chunks = chunks_of(message, finished=False)
    assert [chunk["type"] for chunk in chunks] == ["start", "start-step", "text-start", "text-delta"]
    assert [chunk["type"] for chunk in chunks_of(message)][-2:] == ["finish-step", "finish"]


@each("role", ["user", "system", None])
def test_only_an_assistants_message_is_replayed(role: Any) -> None:
    with pytest.raises(InvalidValue):
        chunks_of({"id": "m", "role": role, "parts": []})


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
