"""persist.sse: chunks become frames of the AI SDK's protocol, and frames cut anywhere become chunks."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist import sse
from persist.errors import InvalidValue, PayloadTooLarge
from tests.cases import each
from tests.unit.json_values import values as json_values

chunks = st.lists(st.dictionaries(st.text(max_size=5), json_values, min_size=1, max_size=3), max_size=4)
CHUNK = {"type": "text-delta", "id": "t", "delta": "naïve 😀 \u2028\u2029\u0085\n\r\0\ud83d"}


def cut(body: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[start:end] for start, end in pairwise(edges)]


@given(chunks, st.lists(st.integers(0, 10_000), max_size=8))
def test_what_was_framed_is_parsed_wherever_it_is_cut(stream: list[dict[str, Any]], places: list[int]) -> None:
    body = b"".join(sse.encode(stream))
    parsed = list(sse.parse(cut(body, places)))
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
