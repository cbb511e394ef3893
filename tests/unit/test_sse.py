"""What is found in a server-sent event stream does not depend on how it was cut."""

import asyncio
import codecs
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from persist import sse
from persist.chat.reducer.sse import EventStream
from persist.errors import InvalidValue, PayloadTooLarge
from tests.cases import each
from tests.unit.json_values import values as json_values

LIMIT = 10_000
A, B = {"type": "text-delta", "id": "a", "delta": "one"}, {"type": "text-delta", "id": "b", "delta": "two"}


def found_in(pieces: Iterable[Any], *, limit: int = LIMIT) -> list[Any]:
    """Chunks, and the reasons of what was refused."""
    events, found = EventStream(limit), []
    for piece in pieces:
        chunk = events.single_frame(piece)
        if chunk is None:
            found += events.read(piece)
        elif chunk:
            found.append(chunk)
    return [str(one) if isinstance(one, InvalidValue) else one for one in [*found, *events.end()]]


def told(found: Iterable[Any]) -> list[Any]:
    """Chunks, and None for what was refused: its words may quote more or less of it."""
    return [None if isinstance(one, str) else one for one in found]


def cut(stream: Any, places: Sequence[int]) -> list[Any]:
    ends = sorted(min(place, len(stream)) for place in places)
    return [stream[begin:end] for begin, end in zip([0, *ends], [*ends, len(stream)], strict=True)]


_texts = st.text(st.sampled_from('a{}[]":,\\ \u2028\u2029\x85\x0b\x0cé😀\ufeff\n\r') | st.characters(codec="utf-8"), max_size=12)
_objects = st.builds(
    lambda text, more: {"type": text, **more}, _texts, st.dictionaries(_texts, _texts | st.integers(), max_size=2)
)


def _one_line(chunk: dict[str, Any], ascii: bool, blank: str) -> list[str]:
    return [f"data:{blank}{json.dumps(chunk, ensure_ascii=ascii)}"]


def _many_lines(chunk: dict[str, Any]) -> list[str]:
    return [f"data: {line}" for line in json.dumps(chunk, indent=1, ensure_ascii=False).split("\n")]


_events = st.one_of(
    st.builds(_one_line, _objects, st.booleans(), st.sampled_from(["", " "])),
    st.builds(_many_lines, _objects),
    st.sampled_from(
        [
            [": a comment"],
            [":"],
            ["event: message", "id: 7", 'data: {"type":"x"}'],
            ["retry: 10", "data"],
            ["data: [DONE]"],
            ["data: nonsense"],
            ["data: [1]"],
            ['data: {"type":"cut off'],
            ["data: {", "data: }}"],
            ["no field"],
            ["field: unknown"],
        ]
    ),
)
_streams = st.builds(
    lambda events, bom, end, last: bom + end.join(line for event in events for line in [*event, ""]) + last * end,
    st.lists(_events, min_size=1, max_size=6),
    st.sampled_from(["", "\ufeff"]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(0, 1),
)
_places = st.lists(st.integers(0, 300), max_size=12)


@given(_streams, _places)
@example('data: {"type":"a\u2028b"}\n\n', list(range(40)))
def test_any_cut_of_text_finds_the_same(stream: str, places: list[int]) -> None:
    assert told(found_in(cut(stream, places))) == told(found_in([stream]))


@given(_streams, _places)
@example('data: {"type":"a\u2028é😀b"}\r\n\r\ndata: {"type":"c"}\r\n', list(range(80)))
def test_any_cut_of_bytes_finds_the_same(stream: str, places: list[int]) -> None:
    found = told(found_in(cut(stream.encode(), places)))
    assert found == told(found_in([stream])) == told(found_in([stream.encode()]))


@given(st.lists(_objects, max_size=5), st.sampled_from(["", "\n", "\r\n"]))
def test_lines_with_and_without_their_ends_are_a_stream_too(chunks: list[dict[str, Any]], end: str) -> None:
    lines = [line for chunk in chunks for line in (f"data: {json.dumps(chunk)}{end}", f": ping{end}", end)]
    assert found_in(lines) == found_in([line.encode() for line in lines]) == chunks


@given(st.lists(_objects, min_size=1, max_size=5))
def test_no_line_of_splitlines_is_lost_or_changed_unseen(chunks: list[dict[str, Any]]) -> None:
    """What was cut at a separator inside a string is refused, everything else is found."""
    stream = "".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks)
    whole = [chunk if len(json.dumps(chunk, ensure_ascii=False).splitlines()) == 1 else None for chunk in chunks]
    found = told(found_in(stream.splitlines()))
    assert [one for one in found if one is not None] == [one for one in whole if one is not None]
    assert (None in found) == (None in whole)
    assert found_in(stream.splitlines(keepends=True)) == chunks


@each("start", ["data: {", "data:{", "data: { ", "\ufeffdata: {", "data: {\ndata: "])
def test_a_cut_behind_the_first_brace_is_a_cut_like_any_other(start: str) -> None:
    assert found_in([start, '"type":"start"}\n\n']) == [{"type": "start"}]


def test_several_frames_come_of_one_call() -> None:
    stream = f"data: {json.dumps(A)}\n\ndata: {json.dumps(B)}\n\ndata: [DONE]\n\n"
    assert found_in([stream]) == found_in([stream.encode()]) == [A, B]
    assert found_in([codecs.BOM_UTF8 + stream.encode()]) == found_in([bytearray(stream.encode())]) == [A, B]


def test_a_frame_is_found_before_its_blank_line() -> None:
    events = EventStream(LIMIT)
    assert events.read(f"data: {json.dumps(A)}") == [A]
    assert events.read("\n\n") == []
    assert events.read(f"data: {json.dumps(A)}\n") == [A]
    assert events.read(f"data: {json.dumps(B)}\n\n") == [B]


def test_a_cut_line_says_what_to_feed_instead() -> None:
    lines = 'data: {"delta":"a\u2028b"}\n\ndata: {"delta":"c"}\n\n'.splitlines()
    for first in ([], ['data: {"delta":"z"}', ""]):
        problem, last = found_in([*first, *lines])[-2:]
        assert "bytes or text" in problem
        assert last == {"delta": "c"}


@each("line", ["data: nonsense", "data: [1]", 'data: "text"', b"data: \xff", "not a field", 7])
def test_a_line_that_is_nothing_is_refused_at_once(line: Any) -> None:
    events = EventStream(LIMIT)
    (problem,) = events.read(line)
    assert isinstance(problem, InvalidValue)
    assert events.read(f"data: {json.dumps(A)}") == [A]
    assert events.end() == []


def test_a_byte_that_is_no_text_spoils_its_own_frame_only() -> None:
    a, b = (json.dumps(chunk).encode() for chunk in (A, B))
    stream = b"data: " + a + b'\n\ndata: {"x":"\xff\xc3"}\n\ndata: {\ndata: "x":"\xff"\ndata: }\n\ndata: ' + b + b"\n\n"
    assert told(found_in([stream])) == [A, None, None, B]
    assert told(found_in([stream[at : at + 1] for at in range(len(stream))])) == [A, None, None, B]
    assert told(found_in([b'data: {"x":"\xc3', "x"])) == [None, None]


@each(
    "stream",
    [
        'data: {"a":',
        'data: {"a":1}\n\ndata: {"b',
        'data: {\n"a',
        "data: {\ndata: 1",
        "da",
        b'data: {"a":"\xc3',
        'data: {"a":"b\n\ndata: {',
    ],
)
def test_a_stream_that_breaks_off_says_so(stream: Any) -> None:
    *_, problem = found_in([stream])
    assert "ended in the middle of a frame" in problem


@each("stream", ["", "\n", ": comment", "event: x", "data: [DONE]", "data:", "id: 7"])
def test_a_stream_may_end_on_a_line_without_data(stream: str) -> None:
    assert found_in(["\n\n", stream]) == []


def test_the_last_frame_may_lack_its_line_end() -> None:
    assert found_in(["\n\n", 'data: {"a"', ":1}"]) == [{"a": 1}]
    assert found_in(["data: {\n", 'data: "a":1}']) == [{"a": 1}]


def test_what_is_held_is_bounded() -> None:
    for stream in ("data: {\n" + 'data: "a": 1,\n' * 2_000 + "\n", "data: " + "x" * 20_000 + "\n\n", "y" * 20_000 + "\n"):
        for pieces in ([stream], cut(stream, range(0, len(stream), 7))):
            events = EventStream(LIMIT)
            problems = [one for piece in ["\n", *pieces] for one in events.read(piece)]
            assert len(problems) == 1
            assert events.read(f"data: {json.dumps(A)}\n") == [A]
    (problem,) = EventStream(LIMIT).read('data: {"a":"' + "é" * 10_000)
    assert isinstance(problem, PayloadTooLarge)
    assert (problem.size, problem.limit) == (20_012, LIMIT)
    (problem,) = EventStream(LIMIT).read('data: {"a":"' + "é" * 10_000 + '"}\n')
    assert isinstance(problem, PayloadTooLarge)


def test_many_small_pieces_of_a_large_frame_take_time_in_proportion() -> None:
    """One look at each: a second one at all of them for every piece would be a hundred thousand times as much."""
    stream = "data: " + json.dumps({"a": "}" * 100_000}) + "\n\n"
    for pieces in (["\n", *stream], list(stream), [character.encode() for character in stream]):
        assert len(found_in(pieces, limit=200_000)) == 1


# persist.sse: chunks become frames of the AI SDK's protocol, and frames cut_into anywhere become chunks.


chunks = st.lists(st.dictionaries(st.text(max_size=5), json_values, min_size=1, max_size=3), max_size=4)
CHUNK = {"type": "text-delta", "id": "t", "delta": "naïve 😀 \u2028\u2029\u0085\n\r\0\ud83d"}


def cut_into(body: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[start:end] for start, end in pairwise(edges)]


@given(chunks, st.lists(st.integers(0, 10_000), max_size=8))
def test_what_was_framed_is_parsed_wherever_it_is_cut(stream: list[dict[str, Any]], places: list[int]) -> None:
    body = b"".join(sse.encode(stream))
    parsed = list(sse.parse(cut_into(body, places)))
    assert list(sse.parse([body])) == parsed
    assert [sse.frame(chunk) for chunk in parsed] == [sse.frame(chunk) for chunk in stream]


def test_every_single_cut_of_a_hard_chunk() -> None:
    body = b"".join(sse.encode([CHUNK, CHUNK]))
    assert all(list(sse.parse([body[:at], body[at:]])) == [CHUNK, CHUNK] for at in range(len(body) + 1))
    assert list(sse.parse(bytes([byte]) for byte in body)) == [CHUNK, CHUNK]
    assert list(sse.parse(body.decode().splitlines())) == [CHUNK, CHUNK]  # which also cuts at U+2028 and its like


def test_a_frame_is_one_line_of_data_and_a_blank_one() -> None:
    assert sse.frame({"type": "finish"}) == b'data: {"type":"finish"}\n\n'
    assert sse.frame(CHUNK).decode().splitlines()[1:] == [""]
    assert list(sse.encode([])) == [sse.DONE] == [b"data: [DONE]\n\n"]


def test_the_headers_are_those_of_the_protocol() -> None:
    assert sse.HEADERS["x-vercel-ai-ui-message-stream"] == "v1"
    assert sse.HEADERS["content-type"] == "text/event-stream"


@each("bad", [{"x": float("nan")}, {"x": object()}, {1: 2}, ["type"], None, "x"], ids=lambda bad: type(bad).__name__)
def test_what_is_no_object_of_json_is_not_framed(bad: Any) -> None:
    with pytest.raises(InvalidValue):
        sse.frame(bad)


NUMBERS = [
    b'data: {"type":"data-x","data":[%s]}\n\n' % number for number in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999")
]


@each("broken", [b"data: {oops}\n\n", b"<html>\n", b'data: {"type":', b"data: \xff\n\n", b"data: [1]\n\n", *NUMBERS])
def test_the_chunks_before_a_refused_frame_are_returned(broken: bytes) -> None:
    parsed = sse.parse([sse.frame(CHUNK) + broken])
    assert next(parsed) == CHUNK
    with pytest.raises(InvalidValue):
        next(parsed)


def test_a_frame_that_never_ends_is_not_kept() -> None:
    endless = (b'data: {"type":"' if not at else b"x" * 1000 for at in range(10**9))
    with pytest.raises(PayloadTooLarge):
        list(sse.parse(endless, max_frame_bytes=10_000))


def test_the_async_face_does_the_same() -> None:
    async def feed(items: list[Any]) -> AsyncIterator[Any]:
        for item in items:
            yield item

    async def both() -> None:
        frames = [frame async for frame in sse.encode_async(feed([CHUNK, {"type": "finish"}]))]
        assert frames == list(sse.encode([CHUNK, {"type": "finish"}]))
        assert [chunk async for chunk in sse.parse_async(feed(frames))] == [CHUNK, {"type": "finish"}]
        with pytest.raises(InvalidValue):
            [chunk async for chunk in sse.parse_async(feed([b"oops\n"]))]

    asyncio.run(both())
