"""What the accumulator promises the recorder, and what it makes of streams beside the AI SDK."""

import copy
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist.chat.reducer.accumulator import Accumulator, UnknownToolCall, grow, reduce
from persist.chat.reducer.chunks import ONLY_IN_7
from persist.chat.reducer.parts import MAX_INPUT_DEPTH
from persist.errors import InvalidValue, StreamProtocolError
from persist.settings import AiSdk
from tests.cases import each
from tests.streams.vectors import VECTORS, name_of

TEXT = [{"type": "start", "messageId": "m1"}, {"type": "start-step"}, {"type": "text-start", "id": "t"}]
TOOL = [{"type": "start-step"}, {"type": "tool-input-start", "toolCallId": "c", "toolName": "w"}]
CALLED = {"type": "tool-input-available", "toolCallId": "c", "toolName": "w", "input": 1}
OUTPUT = {"type": "tool-output-available", "toolCallId": "c", "output": 2}


def text(delta: str, **more: Any) -> dict[str, Any]:
    return {"type": "text-delta", "id": "t", "delta": delta, **more}


def tool_input(delta: str) -> dict[str, Any]:
    return {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": delta}


def fed(chunks: Iterable[dict[str, Any]], message: dict[str, Any] | None = None) -> Accumulator:
    accumulator = Accumulator(message)
    for chunk in chunks:
        accumulator.apply(chunk)
    return accumulator


def test_positions_of_parts_are_their_indexes() -> None:
    initial = {"id": "m1", "role": "assistant", "parts": [{"type": "step-start"}, {"type": "text", "text": "a"}]}
    assert [part.index for part in fed([{"type": "start-step"}, CALLED], initial).parts] == [0, 1, 2, 3]


def test_text_that_only_grows_is_a_delta() -> None:
    accumulator = fed(TEXT)
    part = accumulator.parts[-1]
    change = accumulator.apply(text("Hel"))
    assert (change.delta, change.part, change.structural) == ("Hel", part, False)
    assert part.data["text"] == ""
    assert part.snapshot()["text"] == "Hel"


def test_provider_metadata_is_structural_when_it_differs() -> None:
    accumulator = fed(TEXT)
    assert accumulator.apply(text("a", providerMetadata={"p": {"n": 1}})).changed is accumulator.parts[-1]
    assert accumulator.apply(text("b", providerMetadata={"p": {"n": 1}})).delta == "b"
    assert accumulator.apply(text("c", providerMetadata={"p": {"n": True}})).changed is accumulator.parts[-1]
    assert accumulator.parts[-1].snapshot()["text"] == "abc"


def test_tool_input_is_a_delta_while_its_part_stands() -> None:
    accumulator = fed(TOOL)
    assert accumulator.apply(tool_input("[1")).part is accumulator.parts[-1]
    accumulator.apply(CALLED)
    assert accumulator.apply(tool_input(",2")).changed is accumulator.parts[-1]
    assert accumulator.apply(tool_input(",3")).delta == ",3"
    accumulator.apply({"type": "start-step"})
    assert accumulator.apply(tool_input("]")).appended is accumulator.parts[-1]
    assert accumulator.parts[-1].snapshot()["input"] == [1, 2, 3]


def test_boundaries_ignored_and_dropped_chunks_are_reported() -> None:
    accumulator = Accumulator()
    kinds: list[tuple[dict[str, Any], str]] = [
        ({"type": "finish-step"}, "step"),
        ({"type": "finish"}, "finish"),
        ({"type": "abort"}, "abort"),
    ]
    assert accumulator.apply({"type": "from-the-future"}).ignored
    for chunk, boundary in kinds:
        change = accumulator.apply(chunk)
        assert (change.boundary, change.structural) == (boundary, False)
    for late in ({"type": "text-start", "id": "t"}, {"type": "text-start"}, {"type": "from-the-future"}):
        assert accumulator.apply(late).dropped
    assert (accumulator.message(), accumulator.index) == ({"id": "", "role": "assistant", "parts": []}, 7)


@each(
    ("before", "opened"),
    [
        ([], False),
        ([{"type": "start"}], False),
        ([{"type": "message-metadata", "messageMetadata": {"a": 1}}], False),
        ([{"type": "start", "messageId": "m1"}], False),
        ([{"type": "start", "messageId": "m0"}], True),
        ([{"type": "start-step"}], True),
        ([{"type": "start"}, {"type": "finish"}], True),
    ],
)
def test_a_start_opens_a_message_only_when_there_is_one_to_close(before: list[dict[str, Any]], opened: bool) -> None:
    accumulator = fed(before)
    former = accumulator.message()
    change = accumulator.apply({"type": "start", "messageId": "m1"})
    assert (change.opened, change.structural) == (opened, opened)
    assert (change.closed.message() if change.closed else None) == (former if opened else None)
    assert accumulator.message_id == "m1"


@each(
    "chunk",
    [
        text("x") | {"delta": None},
        {"type": "text-start"},
        {"type": "start", "messageId": "m2", "messageMetadata": "not an object"},
        {"type": "finish", "messageMetadata": [1]},
        {"type": None},
    ],
    ids=str,
)
def test_a_bad_chunk_changes_nothing(chunk: dict[str, Any]) -> None:
    accumulator = fed([*TEXT, text("a")])
    before = accumulator.message()
    with pytest.raises(InvalidValue):
        accumulator.apply(chunk)
    assert (accumulator.message(), accumulator.index) == (before, 4)
    assert accumulator.apply(text("b")).delta == "b"


def test_only_the_latest_change_can_be_undone() -> None:
    accumulator = fed(TEXT)
    first = accumulator.apply(text("a"))
    accumulator.apply(text("b"))
    with pytest.raises(InvalidValue):
        accumulator.undo(first)
    assert accumulator.parts[-1].snapshot()["text"] == "ab"


def test_a_result_reaches_a_part_of_an_earlier_message() -> None:
    earlier = fed([CALLED]).parts[0]
    accumulator = fed(TEXT)
    with pytest.raises(UnknownToolCall) as caught:
        accumulator.apply(OUTPUT)
    assert (caught.value.tool_call_id, caught.value.index, accumulator.index) == ("c", 3, 3)
    accumulator.earlier_message_parts["c"] = earlier
    change = accumulator.apply(OUTPUT)
    assert change.changed is earlier
    assert (earlier.data["state"], earlier.data["output"]) == ("output-available", 2)
    accumulator.undo(change)
    assert earlier.data["state"] == "input-available"
    assert accumulator.apply(CALLED).appended is accumulator.parts[-1]  # only results look there
    assert accumulator.apply(OUTPUT).changed is accumulator.parts[-1]
    accumulator.apply({"type": "start", "messageId": "m2"})
    assert accumulator.earlier_message_parts == {}


@each("message", [{"id": 5}, {"id": "m", "role": "assistant"}, {"id": "m", "role": "assistant", "parts": [{}]}], ids=str)
def test_a_message_that_cannot_be_resumed_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        Accumulator(message)


def test_a_derived_input_is_left_out_when_it_could_not_be_stored() -> None:
    accumulator = fed(TOOL)
    accumulator.apply(tool_input("[" * MAX_INPUT_DEPTH))
    assert "input" in accumulator.parts[-1].snapshot()
    accumulator.apply(tool_input("[[["))
    assert "input" not in accumulator.parts[-1].snapshot()
    accumulator.apply(tool_input("[" * 100_000))
    assert "input" not in accumulator.parts[-1].snapshot()


def test_metadata_merges_at_any_depth() -> None:
    def nested(leaf: str) -> dict[str, Any]:
        value: dict[str, Any] = {leaf: 1}
        for _ in range(5000):
            value = {"a": value}
        return value

    accumulator = fed({"type": "message-metadata", "messageMetadata": nested(leaf)} for leaf in ("x", "y"))
    value: Any = accumulator.metadata
    for _ in range(5000):
        value = value["a"]
    assert value == {"x": 1, "y": 1}


@given(st.text(alphabet=st.sampled_from('ab"\\{[,:1 é😀\n')), st.data())
def test_text_comes_out_whole_however_it_is_cut(whole: str, data: st.DataObject) -> None:
    units = whole.encode("utf-16-le", "surrogatepass")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(units) // 2), max_size=6)))
    ends = [2 * cut for cut in cuts]
    pieces = [
        units[begin:end].decode("utf-16-le", "surrogatepass") for begin, end in zip([0, *ends], [*ends, len(units)], strict=True)
    ]
    accumulator = fed([*TEXT, *map(text, pieces), *TOOL, *map(tool_input, pieces)])
    spoken, called = accumulator.message()["parts"][1], accumulator.message()["parts"][-1]
    assert spoken["text"] == whole
    assert called["rawInput"] == whole


# The accumulator against the real reducer of the AI SDK, chunk by chunk: state, errors, undo, stored parts and tails.


every_vector = each("vector", VECTORS, ids=name_of)


def opened(vector: dict[str, Any]) -> Accumulator:
    return Accumulator(vector.get("initial"), vector["ai_sdk"])


def fed_all(chunks: Iterable[dict[str, Any]], vector: dict[str, Any]) -> Accumulator:
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
    assert reduced == fed_all(readable(vector), vector).message()
    assert (vector.get("initial"), vector["chunks"]) == (initial, chunks)  # nothing that was handed in is changed


@each("vector", [vector for vector in VECTORS if vector["fatal"]], ids=name_of)
def test_a_sequence_error_keeps_the_state_before_it(vector: dict[str, Any]) -> None:
    accumulator = fed_all(readable(vector), vector)
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
    accumulator = fed_all(chunks[:2], vector)
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


def test_what_streamtext_sends_passes_the_validator_of_its_major_and_converts_as_the_sdks_own_message() -> None:
    """`valid` are the majors whose `validateUIMessages` accepts the stored JSON; `converts` those to whose
    `convertToModelMessages` it is the same as the reducer's own object."""
    for vector in VECTORS:
        assert vector["converts"] == vector["valid"]
        if "streamText" in vector["tags"]:
            assert vector["ai_sdk"] in vector["valid"], vector["name"]


def test_the_vectors_of_7_are_many_and_have_every_chunk_that_only_7_has() -> None:
    of_7 = [vector for vector in VECTORS if vector["ai_sdk"] == AiSdk.V7]
    assert len(of_7) >= 150
    assert {chunk["type"] for vector in of_7 for chunk in vector["chunks"]} >= ONLY_IN_7
