"""A process with a worker that is told to stop by a signal: `python -m tests.concurrency.stopping_worker URL FACE PATIENT`.

It says "began" from its handler. A PATIENT handler ends only when it is killed; the other one ends when the worker stops.
"""

import asyncio
import sys
import time

from persist import AsyncStore, Store
from persist.workflows import AsyncWorker, Worker
from persist.workflows.schemas import WorkflowRun


def sync_main(url: str, *, patient: bool) -> None:
    def build(run: WorkflowRun) -> None:
        print("began", flush=True)
        while patient or not worker.is_stopping:
            time.sleep(0.01)

    with Store.open(url) as store:
        worker = Worker(store, {"build": build}, name="w")
        worker.run()
        print("stopped", flush=True)


async def async_main(url: str, *, patient: bool) -> None:
    async def build(run: WorkflowRun) -> None:
        print("began", flush=True)
        while patient or not worker.is_stopping:
            await asyncio.sleep(0.01)

    async with await AsyncStore.open(url) as store:
        worker = AsyncWorker(store, {"build": build}, name="w")
        await worker.run()
        print("stopped", flush=True)


if __name__ == "__main__":
    _, given_url, face, patient_word = sys.argv
    if face == "sync":
        sync_main(given_url, patient=patient_word == "patient")
    else:
        asyncio.run(async_main(given_url, patient=patient_word == "patient"))
