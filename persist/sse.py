"""Server-sent events of the AI SDK's UI message stream protocol: chunks out, as a response of a server, and chunks in.

return StreamingResponse(sse.encode(chunks), headers=sse.HEADERS)
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

from persist.chat.reducer.sse import EventStream, Found
from persist.db.values.json import encode as json_text
from persist.errors import InvalidValue

Chunk = dict[str, Any]
HEADERS: Mapping[str, str] = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "connection": "keep-alive",
    "x-vercel-ai-ui-message-stream": "v1",
    "x-accel-buffering": "no",
}
"""The headers of a response that the client of the AI SDK reads; the last one keeps nginx from buffering it."""
DONE = b"data: [DONE]\n\n"
"""The frame that ends a stream."""
_MAX_FRAME_BYTES = 64 * 2**20
# Line splitters cut at these characters, as they may at line ends; JSON text has them inside strings alone.
_SPLIT_AT = {"\u0085": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def frame(chunk: Mapping[str, Any]) -> bytes:
    """One chunk as a frame, whatever its text holds. InvalidValue: it is no object of JSON values."""
    if not isinstance(chunk, Mapping):
        raise InvalidValue("chunk", f"must be an object, not {type(chunk).__name__}")
    text: str = json_text(dict(chunk), "chunk")
    if not text.isascii():
        for character, escape in _SPLIT_AT.items():
            text = text.replace(character, escape)
    return f"data: {text}\n\n".encode()


def encode(chunks: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """The frames of a stream, `DONE` last."""
    for chunk in chunks:
        yield frame(chunk)
    yield DONE


async def encode_async(chunks: AsyncIterable[Mapping[str, Any]]) -> AsyncIterator[bytes]:
    """See encode."""
    async for chunk in chunks:
        yield frame(chunk)
    yield DONE


def parse(blocks: Iterable[str | bytes], *, max_frame_bytes: int = _MAX_FRAME_BYTES) -> Iterator[Chunk]:
    """The chunks of a stream that comes as bytes or text, cut anywhere. `[DONE]`, comments and other fields are skipped.

    Chunks before a refused frame come first. Raises InvalidValue (no JSON object, cut off by the stream's end), PayloadTooLarge.
    """
    stream = EventStream(max_frame_bytes)
    for block in blocks:
        yield from _chunks(stream.read(block))
    yield from _chunks(stream.end())


async def parse_async(blocks: AsyncIterable[str | bytes], *, max_frame_bytes: int = _MAX_FRAME_BYTES) -> AsyncIterator[Chunk]:
    """See parse."""
    stream = EventStream(max_frame_bytes)
    async for block in blocks:
        for chunk in _chunks(stream.read(block)):
            yield chunk
    for chunk in _chunks(stream.end()):
        yield chunk


def _chunks(found: Iterable[Found]) -> Iterator[Chunk]:
    for one in found:
        if isinstance(one, InvalidValue):
            raise one
        yield one
