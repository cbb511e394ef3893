"""A worker of either face under a synchronous test: its handlers are plain functions in threads of their own."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from persist.workflows import Worker
from persist.workflows.schemas import WorkflowRun
from tests.async_portal import Portal
from tests.contract.workflows.scenes import Around, stored

PATIENCE = 60.0
"""Seconds after which a test that waits for something gives up."""

Handler = Callable[[WorkflowRun], object]


class Working:
    """A worker, and the calls of a handler on it."""

    def __init__(self, store: Any, portal: Portal, handlers: Mapping[str, Handler], **options: Any) -> None:
        target = getattr(store, "_target", store)
        self._is_async, self._portal = target is not store, portal
        found = {name: self._of_face(handler) for name, handler in handlers.items()}
        self.worker = Worker(target, found, **{"lease": timedelta(minutes=5), **options})

    def _of_face(self, handler: Handler) -> Handler:
        if not self._is_async:
            return handler

        async def handle(run: WorkflowRun) -> None:
            await asyncio.to_thread(handler, run)

        return handle

    def run(self, **options: Any) -> None:
        if self._is_async:
            self._portal.call(lambda: self.worker.run(**options))  # type: ignore[arg-type, return-value]  # it is an AsyncWorker
        else:
            self.worker.run(**options)

    def run_until_idle(self) -> None:
        self.run(until_idle=True)

    @contextmanager
    def at_work(self) -> Iterator[threading.Thread]:
        """The worker runs beside the block, and is stopped at its end."""
        raised: list[BaseException] = []

        def work() -> None:
            try:
                self.run()
            except BaseException as error:  # raised below
                raised.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield thread
        finally:
            self.stop()
            thread.join(PATIENCE)
        assert not thread.is_alive()
        if raised:
            raise raised[0]

    def stop(self) -> None:
        self.worker.stop()

    def phase(self, run: WorkflowRun, name: str) -> Around:
        return Around(self.worker.phase(run, name), self._portal)

    def step(self, run: WorkflowRun, key: str) -> Around:
        return Around(self.worker.step(run, key), self._portal)


def seen(event: threading.Event) -> None:
    """Wait for the event, which comes if the code is right."""
    assert event.wait(PATIENCE), "what the test waited for did not happen"


def statuses(store: Any, *ids: str) -> list[str]:
    """The status of each run."""
    return [stored(store, id).status.value for id in ids]
