"""What the database is told when a handler ends."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from persist.db.transactions.outages import Outage
from persist.errors import InvalidValue, LeaseLost, NotFound, PayloadTooLarge, PersistError
from persist.store.store import Store
from persist.workers.jobs import Job
from persist.workers.options import RetryPolicy
from persist.workflows.schemas import RunStatus, WorkflowRun
from persist.workflows.steps import told

log = logging.getLogger("persist")


class Outcomes:
    """Stores how the handlers of one worker end. The methods raise nothing: what cannot be stored is logged."""

    def __init__(self, store: Store, retry: RetryPolicy, rest: Callable[[float], bool]) -> None:
        """`rest` waits so many seconds, and says whether anybody may wait any longer."""
        self._runs, self._retry, self._rest = store.workflows.runs, retry, rest
        self._gave_up = False
        """Whether the worker ended in an outage: what is left to store is not even tried."""
        self._outage = Outage(store.runtime.errors, "how handlers ended cannot be stored")

    def succeeded(self, job: Job) -> None:
        """The handler returned: a running run succeeds, a paused one waits for its gates."""
        self._store(job, lambda: self._runs.complete(job.lease))

    def failed(self, job: Job, error: BaseException) -> None:
        """The handler raised: the run is tried again later, or fails. The verb fails one whose last attempt this was."""
        run, text = job.run, _told(error)
        log.warning("the handler of %s failed in the run %s: %s", run.workflow_name, run.id, text, exc_info=error)
        pause = self._pause(run, error)

        def store(text: str | None) -> None:
            if pause is not None:
                try:
                    return self._runs.release(job.lease, retry_in=pause, error=text)
                except InvalidValue as refused:
                    if refused.path != "retry_in":
                        raise
                    log.error("the retry policy's answer cannot be used; the run %s fails: %s", run.id, refused)
            self._runs.finish(run.id, RunStatus.FAILED.value, error=text, lease=job.lease)
            return None

        self._store(job, lambda: _fitting(store, text))

    def _pause(self, run: WorkflowRun, error: BaseException) -> timedelta | None:
        """What the policy answers; a time that is over is no time. The store judges whatever else it may be."""
        try:
            pause = self._retry(run, error)
        except BaseException:  # whatever ends the policy, the run must not stay claimed
            log.exception("the retry policy failed; the run %s fails", run.id)
            return None
        return max(pause, timedelta(0)) if isinstance(pause, timedelta) else pause

    def given_back(self, job: Job) -> None:
        """The worker stops before the handler has ended: another one does the work."""
        self._store(job, lambda: self._runs.release(job.lease))

    def _store(self, job: Job, call: Callable[[], Any]) -> None:
        """Call the database, again and again during an outage: whether the lease has lasted is the database's to say."""
        try:
            while not self._gave_up:
                try:
                    call()
                except PersistError as error:
                    if not self._outage.met(error):
                        raise
                    self._gave_up = not self._rest(self._outage.pause())
                else:
                    self._outage.is_over()
                    return
            log.warning("the worker ends in an outage: how the handler of the run %s ended is not stored", job.run.id)
        except (LeaseLost, NotFound) as error:
            log.warning("how the handler of the run %s ended is not stored: %s", job.run.id, error)
        except Exception:
            log.exception("how the handler of the run %s ended could not be stored; the run is claimed again", job.run.id)


def _told(error: BaseException) -> str:
    try:
        return told(error)
    except BaseException:  # of the caller's class, whose message ends the thread: its run must not stay claimed
        return f"{type(error).__name__}: its message cannot be read"


def _fitting(store: Callable[[str | None], None], text: str | None) -> None:
    """Store the text, cut in half until it is within the store's caps."""
    while True:
        try:
            return store(text)
        except PayloadTooLarge:
            if text is None:
                raise
            text = text[: len(text) // 2] or None
