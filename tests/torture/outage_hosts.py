"""Hosts that record a stream through every outage, in the way that docs/operations.md tells them to."""

import asyncio
import time
from collections import Counter
from collections.abc import Generator, Mapping
from typing import Any

from persist import AsyncStore, Store
from persist.errors import NotFound, PersistError, Unavailable
from tests.torture.scenario import Tally

_PATIENCE = 60.0
_PAUSE = 0.05
_WIDTH = 6

_Step = tuple[str, Mapping[str, Any]]
_NOTHING: Mapping[str, Any] = {}


class Host:
    """One answer of `length` pieces. `fed` counts those whose `feed` returned, `broken` says what should not have happened."""

    def __init__(self, session: str, message: str, length: int) -> None:
        self.session, self.message, self.length = session, message, length
        self.fed = self.lost = 0
        self.broken: list[str] = []
        self.errors: Counter[str] = Counter()
        self._resumed = 0
        self._deadline = time.monotonic() + _PATIENCE

    def record(self, store: Store) -> None:
        """Until all of it is stored."""
        steps, recorder = self._steps(), None
        step = next(steps, None)
        while step is not None:
            try:
                what, chunk = step
                if what == "record":
                    recorder = store.record(self.session).__enter__()
                elif what == "pause":
                    time.sleep(_PAUSE)
                elif what == "look":
                    step = _sent(steps, _stored(store, self.message))
                    continue
                elif recorder is not None:
                    recorder.close() if what == "close" else recorder.feed(chunk)
                step = _sent(steps, None)
            except PersistError as error:
                step = _thrown(steps, error)

    async def record_async(self, store: AsyncStore) -> None:
        """As `record`."""
        steps, recorder = self._steps(), None
        step = next(steps, None)
        while step is not None:
            try:
                what, chunk = step
                if what == "record":
                    recorder = await store.record(self.session).__aenter__()
                elif what == "pause":
                    await asyncio.sleep(_PAUSE)
                elif what == "look":
                    step = _sent(steps, await asyncio.to_thread(_stored, store._store, self.message))
                    continue
                elif recorder is not None:
                    await (recorder.close() if what == "close" else recorder.feed(chunk))
                step = _sent(steps, None)
            except PersistError as error:
                step = _thrown(steps, error)

    def check(self, store: Store) -> None:
        """In the end: all of it is there, once, and the session is free."""
        found = self._pieces(_stored(store, self.message))
        if found != self.length:
            self.broken.append(f"{self.message}: {found} of {self.length} pieces")
        with store.record(self.session):
            pass

    def tell(self, tally: Tally) -> None:
        """What it met."""
        tally.acknowledged += self.fed
        tally.lost += self.lost
        tally.problems += self.broken
        tally.errors.update(self.errors)

    def _steps(self) -> Generator[_Step, Any, None]:
        while True:
            try:
                yield ("record", _NOTHING)
                self._resumed += 1
                part = f"text {self._resumed}"
                yield from self._feed({"type": "start", "messageId": self.message})
                yield from self._feed({"type": "text-start", "id": part})
                while self.fed < self.length:
                    yield from self._feed({"type": "text-delta", "id": part, "delta": f"{self.fed:0{_WIDTH}}"})
                    self.fed += 1
                yield from self._feed({"type": "text-end", "id": part})
                yield from self._feed({"type": "finish"})
                yield ("close", _NOTHING)
            except Unavailable as error:
                self._note(error)
                yield ("pause", _NOTHING)
                yield from self._look(error)
            else:
                return

    def _feed(self, chunk: Mapping[str, Any]) -> Generator[_Step, Any, None]:
        """Where nothing was written the same chunk is fed again, to the same recorder."""
        while True:
            try:
                yield ("feed", chunk)
            except Unavailable as error:
                if error.outcome == "unknown":
                    raise
                self._note(error)
                yield ("pause", _NOTHING)
            else:
                return

    def _look(self, error: Unavailable) -> Generator[_Step, Any, None]:
        """After an unknown outcome what is stored decides what is fed next; it is what was acknowledged, or one piece more."""
        while True:
            try:
                stored = self._pieces((yield ("look", _NOTHING)))
            except Unavailable as again:
                self._note(again)
                yield ("pause", _NOTHING)
            else:
                break
        if stored < self.fed:
            self.lost += self.fed - stored
        if stored > self.fed + (error.outcome == "unknown"):
            self.broken.append(f"{self.message}: {stored} pieces, {self.fed} acknowledged, {error.outcome}: {error}")
        self.fed = stored

    def _pieces(self, text: str) -> int:
        count = len(text) // _WIDTH
        if text != "".join([f"{number:0{_WIDTH}}" for number in range(count)]):
            self.broken.append(f"{self.message}: something is twice, missing or half: {text[-200:]}")
        return count

    def _note(self, error: Unavailable) -> None:
        self.errors[f"Unavailable ({error.outcome})"] += 1
        if time.monotonic() > self._deadline:
            raise TimeoutError(f"it goes on to fail: {error}") from error


def _sent(steps: Generator[_Step, Any, None], value: object) -> _Step | None:
    try:
        return steps.send(value)
    except StopIteration:
        return None


def _thrown(steps: Generator[_Step, Any, None], error: PersistError) -> _Step | None:
    try:
        return steps.throw(error)
    except StopIteration:
        return None


def _stored(store: Store, message: str) -> str:
    try:
        with store.read() as tx:
            return "".join(part.get("text", "") for part in tx.chat.messages.get(message)["parts"])
    except NotFound:
        return ""
