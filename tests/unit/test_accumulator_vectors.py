"""The accumulator against the real reducer of the AI SDK, chunk by chunk: state, errors, undo, stored parts and tails."""

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist.chat.reducer.accumulator import Accumulator, UnknownToolCall, grow, reduce
from persist.errors import StreamProtocolError
from tests.cases import each

STREAMS = json.loads((Path(__file__).parents[1] / "streams" / "ai-sdk-streams.json").read_text(encoding="utf-8"))
VECTORS: list[dict[str, Any]] = STREAMS["vectors"]
every_vector = each("vector", VECTORS, ids=lambda vector: vector["name"])


def fed(chunks: Iterable[dict[str, Any]], message: dict[str, Any] | None = None) -> Accumulator:
    accumulator = Accumulator(message)
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
    accumulator = Accumulator(vector.get("initial"))
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
    reduced = reduce(readable(vector), vector.get("initial"))
    assert reduced == fed(readable(vector), initial).message()
    assert (vector.get("initial"), vector["chunks"]) == (initial, chunks)  # nothing that was handed in is changed


@each("vector", [vector for vector in VECTORS if vector["fatal"]], ids=lambda vector: vector["name"])
def test_a_sequence_error_keeps_the_state_before_it(vector: dict[str, Any]) -> None:
    accumulator = fed(readable(vector), vector.get("initial"))
    refused = vector["chunks"][vector["fatal"]["at"]]
    for _ in range(2):
        with pytest.raises(StreamProtocolError) as caught:
            accumulator.apply(refused)
        assert (caught.value.index, caught.value.chunk_type) == (vector["fatal"]["at"], refused["type"])
        assert isinstance(caught.value, UnknownToolCall) == (vector["fatal"]["chunkType"] == "tool-invocation")
        assert accumulator.message() == vector["message"]
        assert accumulator.index == vector["fatal"]["at"]


@every_vector
def test_undo_restores_the_state_before_any_chunk(vector: dict[str, Any]) -> None:
    accumulator = Accumulator(vector.get("initial"))
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
    assert accumulator.message() == reduce(readable(vector), vector.get("initial"))


@every_vector
def test_whole_batches_can_be_undone_newest_first(vector: dict[str, Any]) -> None:
    chunks = readable(vector)
    accumulator = fed(chunks[:2], vector.get("initial"))
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
    assert accumulator.message() == reduce(chunks, vector.get("initial"))


@every_vector
def test_a_stored_part_and_its_tail_grow_to_the_snapshot(vector: dict[str, Any]) -> None:
    """The recorder's view: parts stored at structural changes, and the deltas that came since."""
    accumulator = Accumulator(vector.get("initial"))
    stored = {id(part): part.snapshot() for part in accumulator.parts}
    tails: dict[int, list[str]] = {}
    for chunk in readable(vector):
        change = accumulator.apply(chunk)
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
    accumulator = Accumulator(VECTORS[at].get("initial"))
    for position, chunk in enumerate(chunks):
        change = accumulator.apply(chunk)
        if undone[position % len(undone)]:
            accumulator.undo(change)
            accumulator.apply(chunk)
    assert accumulator.message() == reduce(chunks, VECTORS[at].get("initial"))
