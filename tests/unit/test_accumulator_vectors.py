"""The accumulator against the real reducer of the AI SDK, chunk by chunk: state, errors, undo, stored parts and tails."""

import copy
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist.chat.reducer.accumulator import Accumulator, UnknownToolCall, grow, reduce
from persist.chat.reducer.chunks import ONLY_IN_7
from persist.errors import StreamProtocolError
from persist.settings import AiSdk
from tests.cases import each
from tests.streams.vectors import VECTORS, name_of

every_vector = each("vector", VECTORS, ids=name_of)


def opened(vector: dict[str, Any]) -> Accumulator:
    return Accumulator(vector.get("initial"), vector["ai_sdk"])


def fed(chunks: Iterable[dict[str, Any]], vector: dict[str, Any]) -> Accumulator:
    accumulator = opened(vector)
    for chunk in chunks:
        accumulator.apply(chunk)
    return accumulator


def readable(vector: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks before the one that is refused, and through an abort."""
    chunks = vector["chunks"][: vector["fatal"]["at"]] if vector["fatal"] else vector["chunks"]
    aborted = next((at for at, chunk in enumerate(chunks) if chunk["type"] == "abort"), len(chunks))
    return list(chunks[: aborted + 1])


@every_vector
def test_every_cut_shows_what_the_sdk_holds(vector: dict[str, Any]) -> None:
    accumulator = opened(vector)
    expected = {cut["consumed"]: cut["message"] for cut in vector["cuts"]}
    errors, closed = [], []
    for consumed, chunk in enumerate(readable(vector), start=1):
        change = accumulator.apply(chunk)
        if change.error_text is not None:
            errors.append(change.error_text)
        if change.closed is not None:
            closed.append(change.closed.message())
        assert accumulator.index == consumed
        if consumed in expected:
            assert accumulator.message() == expected[consumed]
    if not accumulator.aborted:
        assert accumulator.message() == vector["message"]
        assert errors == vector["error_texts"]
        assert closed == vector.get("previous_messages", [])


@every_vector
def test_reduce_gives_the_last_message(vector: dict[str, Any]) -> None:
    initial, chunks = copy.deepcopy(vector.get("initial")), copy.deepcopy(vector["chunks"])
    reduced = reduce(readable(vector), vector.get("initial"), ai_sdk=vector["ai_sdk"])
    assert reduced == fed(readable(vector), vector).message()
    assert (vector.get("initial"), vector["chunks"]) == (initial, chunks)  # nothing that was handed in is changed


@each("vector", [vector for vector in VECTORS if vector["fatal"]], ids=name_of)
def test_a_sequence_error_keeps_the_state_before_it(vector: dict[str, Any]) -> None:
    accumulator = fed(readable(vector), vector)
    refused = vector["chunks"][vector["fatal"]["at"]]
    for _ in range(2):
        with pytest.raises(StreamProtocolError) as caught:
            accumulator.apply(refused)
        assert (caught.value.index, caught.value.chunk_type) == (vector["fatal"]["at"], refused["type"])
        elsewhere = vector["fatal"]["chunkType"] in ("tool-invocation", "tool-approval-response")
        assert isinstance(caught.value, UnknownToolCall) == elsewhere
        assert accumulator.message() == vector["message"]
        assert accumulator.index == vector["fatal"]["at"]


@every_vector
def test_undo_restores_the_state_before_any_chunk(vector: dict[str, Any]) -> None:
    accumulator = opened(vector)
    for at, chunk in enumerate(readable(vector)):
        before, metadata = copy.deepcopy(accumulator.message()), accumulator.metadata
        change = accumulator.apply(chunk)
        if at % 3 == 0:
            accumulator.message()  # a snapshot between a chunk and its undo must not matter
        accumulator.undo(change)
        assert accumulator.message() == before
        assert accumulator.metadata is metadata
        assert accumulator.index == at
        accumulator.apply(chunk)
    assert accumulator.message() == reduce(readable(vector), vector.get("initial"), ai_sdk=vector["ai_sdk"])


@every_vector
def test_whole_batches_can_be_undone_newest_first(vector: dict[str, Any]) -> None:
    chunks = readable(vector)
    accumulator = fed(chunks[:2], vector)
    before = copy.deepcopy(accumulator.message())
    changes = []
    for at, chunk in enumerate(chunks[2:]):
        changes.append(accumulator.apply(chunk))
        if at % 5 == 0:
            accumulator.message()
    for change in reversed(changes):
        accumulator.undo(change)
    assert accumulator.message() == before
    for chunk in chunks[2:]:
        accumulator.apply(chunk)
    assert accumulator.message() == reduce(chunks, vector.get("initial"), ai_sdk=vector["ai_sdk"])


@every_vector
def test_a_stored_part_and_its_tail_grow_to_the_snapshot(vector: dict[str, Any]) -> None:
    """The recorder's view: parts stored at structural changes, and the deltas that came since."""
    accumulator = opened(vector)
    stored = {id(part): part.snapshot() for part in accumulator.parts}
    tails: dict[int, list[str]] = {}
    for chunk in readable(vector):
        change = accumulator.apply(chunk)
        for gone in change.removed:
            del stored[id(gone)]
            tails.pop(id(gone), None)
        for part in (change.appended, change.changed):
            if part is not None:
                stored[id(part)] = part.snapshot()
                tails.pop(id(part), None)
        if change.part is not None and change.delta is not None:
            assert not change.structural
            tails.setdefault(id(change.part), []).append(change.delta)
        seen = [
            grow(stored[id(part)], "".join(tails[id(part)])) if id(part) in tails else stored[id(part)]
            for part in accumulator.parts
        ]
        assert seen == accumulator.message()["parts"]


@given(st.integers(0, len(VECTORS) - 1), st.lists(st.booleans(), min_size=1, max_size=20))
def test_undone_and_repeated_chunks_leave_no_trace(at: int, undone: list[bool]) -> None:
    chunks = readable(VECTORS[at])
    accumulator = opened(VECTORS[at])
    for position, chunk in enumerate(chunks):
        change = accumulator.apply(chunk)
        if undone[position % len(undone)]:
            accumulator.undo(change)
            accumulator.apply(chunk)
    assert accumulator.message() == reduce(chunks, VECTORS[at].get("initial"), ai_sdk=VECTORS[at]["ai_sdk"])


# ---------------------------------------------------------------- validators and conversion


def test_what_streamtext_sends_passes_the_validator_of_its_major_and_converts_as_the_sdks_own_message() -> None:
    """`valid` are the majors whose `validateUIMessages` accepts the stored JSON; `converts` those to whose
    `convertToModelMessages` it is the same as the reducer's own object."""
    for vector in VECTORS:
        assert vector["converts"] == vector["valid"]
        if "streamText" in vector["tags"]:
            assert vector["ai_sdk"] in vector["valid"], vector["name"]


def test_a_message_without_parts_of_7_is_valid_in_6_if_it_is_in_7() -> None:
    only_7 = {"custom", "reasoning-file", "steering-message"}
    for vector in VECTORS:
        has_them = any(part["type"] in only_7 for part in vector["message"]["parts"])
        assert (AiSdk.V6 in vector["valid"]) == (AiSdk.V7 in vector["valid"] and not has_them), vector["name"]


def test_the_vectors_of_7_are_many_and_have_every_chunk_that_only_7_has() -> None:
    of_7 = [vector for vector in VECTORS if vector["ai_sdk"] == AiSdk.V7]
    assert len(of_7) >= 150
    assert {chunk["type"] for vector in of_7 for chunk in vector["chunks"]} >= ONLY_IN_7
