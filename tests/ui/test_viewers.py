"""Live streams: how many look on, what a silent stream says, and what becomes of one who leaves or does not read."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from persist.ui import live
from persist.ui.live import EventStream, Viewers, as_event
from persist.ui.views import Told


async def numbers(count: int) -> AsyncIterator[Told]:
    for number in range(count):
        yield Told("number", number, str(number))


async def silence(ended: list[str]) -> AsyncIterator[Told]:
    try:
        await asyncio.sleep(3600)
        yield Told("never", 0)
    finally:
        ended.append("ended")


class Viewer:
    """One who looks on: reads everything, leaves, or stops reading after some pieces."""

    def __init__(self, reads: int = 10_000) -> None:
        self.got: list[dict[str, Any]] = []
        self.left = asyncio.Event()
        self._reads = reads

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if len(self.got) > self._reads:
            await asyncio.sleep(3600)
        self.got.append(dict(message))

    @property
    def text(self) -> str:
        return b"".join(one.get("body", b"") for one in self.got).decode()

    @property
    def is_whole(self) -> bool:
        return self.got[-1].get("more_body") is False


async def look(stream: EventStream, viewer: Viewer) -> None:
    await stream({"type": "http"}, viewer.receive, viewer.send)


def test_what_is_told_comes_as_events_and_ends() -> None:
    async def run() -> Viewer:
        viewer = Viewer()
        await look(EventStream(numbers(2), Viewers()), viewer)
        return viewer

    viewer = asyncio.run(run())
    assert viewer.text == "retry: 2000\n\nid: 0\nevent: number\ndata: 0\n\nid: 1\nevent: number\ndata: 1\n\n"
    assert viewer.is_whole


def test_no_text_ends_an_event_before_its_end() -> None:
    assert as_event(Told("text", "a\n\ndata: b\r\u2028\ud83d\x00")).count(b"\n") == 3


def test_a_viewer_who_leaves_ends_what_told_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "HEARTBEAT", 0.01)

    async def run() -> tuple[Viewer, list[str], Viewers]:
        viewer, ended, viewers = Viewer(), list[str](), Viewers()
        task = asyncio.create_task(look(EventStream(silence(ended), viewers), viewer))
        while viewer.text.count(": still here") < 2:
            await asyncio.sleep(0.005)
        viewer.left.set()
        await task
        return viewer, ended, viewers

    viewer, ended, viewers = asyncio.run(run())
    assert ended == ["ended"]
    assert not viewers.is_full
    assert "event:" not in viewer.text


def test_a_viewer_who_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PATIENCE", 0.05)
    taken = []

    async def counted() -> AsyncIterator[Told]:
        async for told in numbers(1_000):
            taken.append(told)
            yield told

    asyncio.run(asyncio.wait_for(look(EventStream(counted(), Viewers()), Viewer(reads=5)), 20))
    assert len(taken) < 10


def test_a_server_that_stops_ends_all_streams_as_whole_answers() -> None:
    async def run() -> tuple[list[Viewer], list[str]]:
        viewers, ended = Viewers(), list[str]()
        looking = [Viewer() for _ in range(3)]
        tasks = [asyncio.create_task(look(EventStream(silence(ended), viewers), viewer)) for viewer in looking]
        while not all(viewer.text for viewer in looking):
            await asyncio.sleep(0.005)
        viewers.close()
        await asyncio.gather(*tasks)
        return looking, ended

    looking, ended = asyncio.run(run())
    assert [viewer.is_whole for viewer in looking] == [True] * 3
    assert ended == ["ended"] * 3


def test_there_is_a_limit_of_viewers() -> None:
    async def run() -> None:
        viewers, ended = Viewers(most=2), list[str]()
        looking = [Viewer() for _ in range(2)]
        tasks = [asyncio.create_task(look(EventStream(silence(ended), viewers), viewer)) for viewer in looking]
        while not all(viewer.text for viewer in looking):
            await asyncio.sleep(0.005)
        assert viewers.is_full
        looking[0].left.set()
        await tasks[0]
        assert not viewers.is_full
        viewers.close()
        await tasks[1]

    asyncio.run(run())
