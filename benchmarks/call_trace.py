"""How far one call travels inside the package: `python -m benchmarks.call_trace` prints calls, modules and moves between modules.

A move is a call from one module of persist to another, or the return to it. Drivers and SQLAlchemy are left out, and so is
everything that runs once: each call is made several times before it is traced.
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import persist
from persist import AsyncStore, Store

_ROOT = str(Path(persist.__file__).parent)
_WARM = 50


@dataclass
class Trace:
    """What `sys.setprofile` saw of the package while one call ran."""

    calls: int = 0
    modules: set[str] = field(default_factory=set)
    moves: int = 0
    _stack: list[str] = field(default_factory=list)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event not in ("call", "return") or not name.startswith(_ROOT):
            return
        if event == "return":
            if self._stack:
                self._stack.pop()
            return
        self.calls += 1
        self.modules.add(name)
        if self._stack and self._stack[-1] != name:
            self.moves += 1
        self._stack.append(name)


@contextmanager
def tracing() -> Iterator[Trace]:
    """Trace what this thread calls inside of the block."""
    trace = Trace()
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(None)


def traced(call: Callable[[], object]) -> Trace:
    """The call, warm."""
    for _ in range(_WARM):
        call()
    with tracing() as trace:
        call()
    return trace


def synchronous(url: str) -> dict[str, Trace]:
    """Recording a chunk, appending a message, listing runs."""
    found = {}
    with Store.open(url) as store:
        with store.begin() as tx:
            session = tx.chat.sessions.create(agent="a", model={}).id
            tx.workflows.runs.create("w", trigger_id="t", current_phase="p")
        with store.record(session) as recorder:
            recorder.feed_many([{"type": "start", "messageId": "m"}, {"type": "text-start", "id": "t"}])
            delta = {"type": "text-delta", "id": "t", "delta": "word "}
            found["Recorder.feed(text-delta)"] = traced(lambda: recorder.feed(delta))

        def append() -> None:
            with store.begin() as tx:
                tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "hi"}])

        def listed() -> None:
            with store.read() as tx:
                tx.workflows.runs.list(status="running")

        found["begin + messages.append + commit"] = traced(append)
        found["read + workflows.runs.list(status=…)"] = traced(listed)
    return found


async def asynchronous(url: str) -> Trace:
    """Recording a chunk on the event loop."""
    async with AsyncStore.open(url) as store:
        async with store.begin() as tx:
            session = (await tx.chat.sessions.create(agent="a", model={})).id
        async with store.record(session) as recorder:
            await recorder.feed_many([{"type": "start", "messageId": "m2"}, {"type": "text-start", "id": "t"}])
            delta = {"type": "text-delta", "id": "t", "delta": "word "}
            for _ in range(_WARM):
                await recorder.feed(delta)
            with tracing() as trace:
                await recorder.feed(delta)
    return trace


def main() -> None:
    """The table."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder).as_posix()}/trace.db"
        rows = synchronous(url)
        rows["AsyncRecorder.feed(text-delta)"] = asyncio.run(asynchronous(url))
    print("| call | calls | modules | moves |")
    print("|---|---|---|---|")
    for name, trace in rows.items():
        print(f"| `{name}` | {trace.calls} | {len(trace.modules)} | {trace.moves} |")


if __name__ == "__main__":
    main()
