"""Writing and reading session logs."""

import os
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from benchmarks.measure import Row, interleaved, middle
from persist.sessionlog import SessionLogWriter, iter_session_log

BATCH = 100


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


def writing(folder: Path) -> Iterator[Row]:
    """Events in batches of a hundred, beside orjson and one append for the same events."""
    batches = iter([_batch(number) for number in range(310)])
    log = SessionLogWriter(folder, "-bench", initial_prompt="go")
    raw = os.open(folder / "raw.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    events = _batch(0)

    def by_hand() -> None:
        os.write(raw, b"".join(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE) for event in events))

    def by_writer() -> float:
        batch = next(batches)
        started = time.process_time()
        log.feed_many(batch)
        return time.process_time() - started

    seconds = interleaved({"raw": by_hand, "writer": by_writer}, rounds=300)
    os.close(raw)
    each, floor = middle(seconds["writer"]) / BATCH, middle(seconds["raw"]) / BATCH
    rate = f"{1 / each:,.0f} events/s on one core"
    yield Row("session log: one event, in batches of 100", each * 1e6, 20, rate, unit=" µs")
    yield Row("  … vs orjson and one append, untranslated", each / floor, float("inf"), f"{floor * 1e6:.2f} µs")


def memory(folder: Path) -> Iterator[Row]:
    """A log of 100 MB, message by message."""
    log = SessionLogWriter(folder, "-bench")
    batch = _batch(0)
    log.feed_many(batch)
    assert log.path is not None
    while log.path.stat().st_size < 100_000_000:
        log.feed_many(batch * 50)
    size = log.path.stat().st_size
    started = time.perf_counter()
    count = sum(1 for _ in iter_session_log(log.path))
    rate = size / 1e6 / (time.perf_counter() - started)
    tracemalloc.start()
    assert sum(1 for _ in iter_session_log(log.path)) == count
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    yield Row("session log of 100 MB: most memory while reading", peak / 1e6, 1, f"{rate:,.0f} MB/s", unit=" MB")
