"""Writing session logs, against orjson and one append, and reading them."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from benchmarks.measure import Row, interleaved, middle, most_memory
from benchmarks.place import Place
from persist.sessionlog import SessionLogWriter, iter_session_log

BATCH = 100
_LARGE = 100_000_000


def rows(place: Place) -> Iterator[Row]:
    """Writing, then reading."""
    yield from _writing(place.folder)
    yield _reading(place.folder, _LARGE // 5 if place.quick else _LARGE)


def _batch(number: int) -> list[dict[str, Any]]:
    """Messages that call a tool, and what the tool returned."""
    events: list[dict[str, Any]] = []
    for at in range(BATCH // 2):
        head = {"sessionId": "bench", "timestamp": 1_781_521_200_000 + at}
        call = {"type": "toolCall", "id": f"call-{number}-{at}", "name": "bash", "arguments": {"command": "ls -la"}}
        message = {"role": "assistant", "content": [{"type": "text", "text": "lorem ipsum " * 20}, call]}
        events.append(head | {"type": "message_end", "message": message | {"usage": {"input": 1200, "output": 34}}})
        events.append(head | {"type": "tool_execution_end", "toolCallId": call["id"], "result": "app.py\n" * 40})
    return events


def _writing(folder: Path) -> Iterator[Row]:
    """Events in batches of a hundred, beside orjson and one append for the same events."""
    batches = iter([_batch(number) for number in range(310)])
    log = SessionLogWriter(folder, "-bench", initial_prompt="go")
    raw = os.open(folder / "raw.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    events = _batch(0)

    def by_hand() -> None:
        os.write(raw, b"".join(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE) for event in events))

    def by_writer() -> float:
        batch = next(batches)
        started = time.perf_counter()
        log.feed_many(batch)
        return time.perf_counter() - started

    seconds = interleaved({"raw": by_hand, "writer": by_writer}, rounds=300)
    log.close()
    os.close(raw)
    each, floor = middle(seconds["writer"]) / BATCH, middle(seconds["raw"]) / BATCH
    yield Row("one event, in batches of 100", each * 1e6, 20, f"{1 / each:,.0f} events/s", unit=" µs")
    yield Row("  … vs orjson and one append, untranslated", each / floor, float("inf"), f"{floor * 1e6:.2f} µs")


def write_log(folder: Path, size: int) -> Path:
    """A log of at least so many bytes."""
    log = SessionLogWriter(folder, "-bench")
    batch = _batch(0)
    log.feed_many(batch)
    assert log.path is not None
    while log.path.stat().st_size < size:
        log.feed_many(batch * 20)
    log.close()
    return log.path


def _reading(folder: Path, least: int) -> Row:
    """Message by message."""
    path = write_log(folder, least)
    size = path.stat().st_size
    started = time.perf_counter()
    count = sum(1 for _ in iter_session_log(path))
    rate = size / 1e6 / (time.perf_counter() - started)
    found = []
    peak = most_memory(lambda: found.append(sum(1 for _ in iter_session_log(path))))
    assert found == [count]
    return Row(f"most memory while reading one of {least / 1e6:,.0f} MB", peak, 1, f"{rate:,.0f} MB/s", unit=" MiB")
