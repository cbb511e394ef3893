"""The loop of a worker, for both faces: it claims runs, renews their leases, and does what is due in the store."""

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from persist.db.dialects.interface import RUNS, Wakeups
from persist.db.transactions.notifier import Outage, named
from persist.db.transactions.repository import Sync
from persist.domains import Domains
from persist.errors import Closed, InvalidValue, LeaseLost, NotFound, PayloadTooLarge, PersistError, shown
from persist.store.store import Store
from persist.workers.jobs import LONGEST_WAIT, Job, RetryPolicy, WorkerOptions
from persist.workflows.schemas import ANY_WORKFLOW, Lease, RunStatus, WorkflowRun
from persist.workflows.steps import error_text

log = logging.getLogger("persist")


class Outcomes:
    """Stores how the handlers of one worker end. The methods raise nothing: what cannot be stored is logged."""

    def __init__(self, store: Store, retry: RetryPolicy, rest: Callable[[float], bool]) -> None:
        """`rest` waits so many seconds, and says whether anybody may wait any longer."""
        self._runs, self._retry, self._rest = store.workflows.runs, retry, rest
        self._gave_up = False
        """Whether the worker ended in an outage: what is left to store is not even tried."""
        self._outage = Outage(store.runtime.errors, "how handlers ended cannot be stored", permitted=True)

    def succeeded(self, job: Job) -> None:
        """The handler returned: a running run succeeds, a paused one waits for its gates."""
        self._store(job, lambda: self._runs.complete(job.lease))

    def failed(self, job: Job, error: BaseException) -> None:
        """The handler raised: the run is tried again later, or fails. The verb fails one whose last attempt this was."""
        run, text = job.run, _error_text(error)
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


def _error_text(error: BaseException) -> str:
    try:
        return error_text(error)
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


T = TypeVar("T")

_RENEWALS = 3
"""How many times a lease is renewed within its length, so that one failed attempt loses nothing."""
_AT_ONCE = 1000
"""How many runs one call claims; a worker that wants more calls again."""
_SOON = 0.05
"""Seconds between looks for work that a running handler may have queued, for a worker that ends when it is idle."""
_CLAIM, _LEFTOVERS = "claim", "leftovers"
_CLEAN_UP = 10.0
"""Seconds that cancelled handlers have to end."""


class ClaimLoop:
    """One worker at work. `start` begins the handler of a claimed run elsewhere, which calls `ended` when it is over."""

    def __init__(self, store: Store, options: WorkerOptions, start: Callable[[Job], None]) -> None:
        self._store, self._options, self._start = store, options, start
        self._outcomes = Outcomes(store, options.retry, self._rest)
        self._names = frozenset(options.handlers)
        self._wakers = self._names | {ANY_WORKFLOW}
        self._jobs: dict[str, Job] = {}
        self._changed = threading.Condition()
        """Guards `_jobs`, `_ending` and `_stopping`; notified when a job ends and when the worker is to stop."""
        self._ending: list[Job] = []
        """Jobs that have succeeded, for the transaction of the next claim to store; who ended them waits for it."""
        self._takes_ends = False
        """Whether the next claim is at hand."""
        self._stopping = self._hurried = self._impatient = False
        self._ended = 0
        """How many jobs have ended."""
        self._over = threading.Event()
        runtime = store.runtime
        self._wakeups: Wakeups = runtime.dialect.event_log.wakeups(runtime.listen_url, RUNS)
        errors = runtime.errors
        self._outage = Outage(errors, f"the worker {options.name} cannot use the database")
        self._renewing = Outage(errors, f"the leases of the worker {options.name} cannot be renewed", permitted=True)
        self._permitted: set[str] = set()
        """The calls that have succeeded before: a role that is refused one of them now waits for its grants."""
        self._failing: set[str] = set()
        """The calls that met the outage and have not succeeded since."""
        self._due_at = 0.0
        self._told = ""
        """Why what is due could not be done, as it was logged last."""

    # -- called from other threads

    def stop(self, *, hurry: bool = False) -> None:
        """Claim no more, and return from `run` when handlers or the time of grace end. `hurry`: without grace."""
        with self._changed:
            self._stopping, self._hurried = True, self._hurried or hurry
            self._changed.notify_all()
        self._wakeups.stop()

    def job(self, run_id: str, token: int | None = None) -> Job:
        """The job of a run that this worker holds, by the claim with that token. Raises LeaseLost if it holds none."""
        with self._changed:
            job = self._jobs.get(run_id)
        if job is None or job.is_over:
            raise LeaseLost(run_id, token, "this worker does not hold it.")
        if token is not None and job.lease.token != token:
            raise LeaseLost(run_id, token, f"the lease is over: this worker holds the run by the lease {job.lease.token}.")
        return job

    def trouble(self) -> str | None:
        """Why no run can be claimed now, as far as the database tells; None if nothing is in the way."""
        for outage in (self._outage, self._renewing):
            if outage.is_on:
                return outage.reason
        path = self._store.path
        if path is not None and not path.exists():  # what is open of a file that is gone can still be read
            return f"there is no file {shown(str(path))} any more"
        try:
            self._store.workflows.runs.held_by(self._options.name)
        except PersistError as error:
            return str(error)
        return None

    def keeps(self, job: Job) -> bool:
        """Whether this worker holds the run, and the worker's time of grace is not over."""
        return not job.is_over and not self._impatient

    def ended(self, job: Job, error: BaseException | None) -> None:
        """Store how a handler ended; `error` is what it raised. A success goes with the next claim, if that is at hand."""
        job.is_ending = True
        if error is None and not job.is_over and self._goes_with_claim(job):
            return
        try:
            if job.is_given_back:
                self._outcomes.given_back(job)
            elif job.is_lost or (isinstance(error, LeaseLost) and error.run_id == job.run.id):
                self._store.runtime.counters.lease_lost()
                log.warning("the lease of the run %s is lost: what its handler did last is not stored", job.run.id)
            elif error is None:
                self._outcomes.succeeded(job)
            else:
                self._outcomes.failed(job, error)
        finally:
            self._forget(job)

    def _goes_with_claim(self, job: Job) -> bool:
        with self._changed:
            if not self._takes_ends or self._outage.is_on:
                return False
            self._ending.append(job)
            self._changed.notify_all()
            self._changed.wait_for(lambda: job.went_with_claim is not None or self._impatient)
            return bool(job.went_with_claim)

    # -- the loop

    def run(self, *, until_idle: bool) -> None:
        """Work until `stop`; with `until_idle` only until no handler runs and nothing can be claimed."""
        runtime, wakeups = self._store.runtime, self._wakeups
        runtime.check_usable()
        runtime.watchers.add(wakeups)
        keeper = threading.Thread(target=self._keep_leases, name="persist-leases", daemon=True)
        keeper.start()
        try:
            self._try(_LEFTOVERS, self._release_leftovers)
            while not self._stopping and not wakeups.stopped and self._turn(until_idle):
                pass
        except Closed:
            log.warning("the store was closed while its worker %s was at work", self._options.name)
        finally:
            try:
                self._take_no_ends()
                self._end_jobs()
            finally:
                self._over.set()
                keeper.join()
                runtime.watchers.discard(wakeups)
                wakeups.close()

    def _turn(self, until_idle: bool) -> bool:
        """Claim what there is, or wait for a change. False if the worker is done."""
        self._do_what_is_due()
        ended, ending = self._ended, self._take_ends()
        free = self._options.concurrency - len(self._held()) + len(ending)
        if free and self._claim(min(free, _AT_ONCE), ending):
            return True
        rest = self._options.poll
        if until_idle or self._outage.is_on:  # no notification tells the end of an outage, and `poll` may be minutes
            rest = min(rest, _SOON)
        if free and not until_idle:
            self._take_no_ends()
            self._wait(rest)
            return True
        with self._changed:
            if self._ended != ended or self._ending:  # what ended in this moment may have queued something
                return True
            if not self._jobs and not self._outage.is_on:
                return False
            self._changed.wait(rest)
            return True

    def _wait(self, seconds: float) -> None:
        """Wait until a run may be there to claim, or something else is due."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._wakeups.stopped:
            told = self._wakeups.wait(left)
            if told is None or not self._wakers.isdisjoint(name for text in told for name in named(text)):
                return

    def _take_ends(self) -> list[Job]:
        """The jobs whose ends the next claim stores; it takes those that end until it begins again, too."""
        with self._changed:
            ending, self._ending, self._takes_ends = self._ending, [], True
            return ending

    def _take_no_ends(self) -> None:
        """Let who ended a handler store it: the next claim is not at hand."""
        with self._changed:
            self._takes_ends = False
            self._return_ends(self._ending)
            self._ending = []

    def _return_ends(self, ending: list[Job]) -> None:
        """Let those who wait store these ends."""
        with self._changed:
            for job in ending:
                job.went_with_claim = False
            self._changed.notify_all()

    def _claim(self, free: int, ending: list[Job]) -> bool:
        """Store these ends, claim and start up to `free` runs; whether there was one."""
        jobs = None
        try:
            jobs = self._try(_CLAIM, lambda: self._claimed(free, ending))
        except PersistError as error:
            if not ending or isinstance(error, Closed):
                raise
        finally:
            if jobs is None:
                self._return_ends(ending)  # in an outage, or because the database refused one of them
        for job in jobs or ():
            try:
                self._start(job)
            except Exception:
                log.exception("no handler can be started; the run %s is released", job.run.id)
                job.give_back()
                self.ended(job, None)
        return bool(jobs)

    def _claimed(self, free: int, ending: list[Job]) -> list[Job]:
        """Claim up to `free` runs, which are the worker's before anything else is done: none of them is a leftover."""
        options, asked_at = self._options, time.monotonic()

        def end_and_claim(domains: Domains[Sync]) -> list[Lease]:
            runs = domains.workflows.runs
            for job in ending:
                runs.complete(job.lease)
            return runs.claim(options.name, lease=options.lease, workflow_names=sorted(self._names), limit=free)

        leases = self._store.transact(end_and_claim) if ending else end_and_claim(self._store)
        for job in ending:
            job.went_with_claim = True
            self._forget(job)
        jobs = [Job(lease, options.lease.total_seconds(), asked_at) for lease in leases]
        with self._changed:
            former = [self._jobs[job.run.id] for job in jobs if job.run.id in self._jobs]
            self._jobs.update({job.run.id: job for job in jobs})
        for job in former:
            job.lose()
        return jobs

    def _do_what_is_due(self) -> None:
        """Once in a while: gates that expire, schedules that fire. Any worker does it."""
        now = time.monotonic()
        if now < self._due_at:
            return
        self._take_no_ends()  # what is due may take a while
        self._due_at = now + self._options.poll
        for job in self._held():
            if job.is_expired:
                job.lose()
        workflows = self._store.workflows
        sweeps: dict[str, Callable[[], object]] = {
            "schedules": workflows.schedules.fire_due,
            "signals": workflows.signals.expire_due,
            "approvals": workflows.approvals.expire_due,
        }
        for what, sweep in sweeps.items():
            try:
                self._try(what, sweep)
            except Closed:
                raise
            except Exception as error:  # what one kind of sweep cannot do must not end the work on everything else
                if self._told != (told := f"{type(error).__name__}: {error}"):
                    self._told = told
                    log.exception("what is due in the store cannot be done")

    def _release_leftovers(self) -> None:
        """Give back what an earlier process of this name held, and claims whose answer was lost."""
        runs = self._store.workflows.runs
        for lease in runs.held_by(self._options.name):
            with self._changed:
                job = self._jobs.get(lease.run_id)
            if job is None or job.lease.token != lease.token:
                try:
                    runs.release(lease)
                except (LeaseLost, NotFound) as error:  # ended, or another worker's, since the look
                    if self._store.runtime.errors.is_outage(error):  # it is the database that is not found
                        raise

    def _try(self, what: str, call: Callable[[], T]) -> T | None:
        """Call the database; during an outage, which is logged once, wait a moment and return None.

        The outage is over when each call that failed has succeeded: others may only have read, as they can on a full disk.
        """
        try:
            result = call()
        except PersistError as error:
            if not self._outage.met(error, permitted=what in self._permitted):
                raise
            self._failing.add(what)
            self._due_at = 0.0
            with self._changed:
                self._changed.wait_for(lambda: self._stopping, self._outage.pause())
            return None
        self._permitted.add(what)
        self._failing -= {what, _LEFTOVERS}
        if not self._failing and self._outage.is_over():
            self._try(_LEFTOVERS, self._release_leftovers)
        return result

    def _rest(self, seconds: float) -> bool:
        """Wait before the end of a handler is stored again. False: the worker has waited for it as long as it may."""
        with self._changed:
            return not self._changed.wait_for(lambda: self._impatient, seconds)

    # -- jobs and their leases

    def _held(self) -> list[Job]:
        with self._changed:
            return list(self._jobs.values())

    def _forget(self, job: Job) -> None:
        with self._changed:
            if self._jobs.get(job.run.id) is job:
                del self._jobs[job.run.id]
            self._ended += 1
            self._changed.notify_all()

    def _end_jobs(self) -> None:
        """Wait for the handlers; when the time of grace is over, cancel them and give their runs back."""
        with self._changed:
            if self._jobs and not self._hurried:
                log.info("the worker %s stops; handlers that are still at work: %d", self._options.name, len(self._jobs))
            self._changed.wait_for(lambda: not self._jobs or self._hurried, self._options.grace)
            self._impatient = True
            self._changed.notify_all()
        left = self._held()
        for job in left:
            job.give_back()
        if not left:
            return
        with self._changed:
            self._changed.wait_for(lambda: all(job.cancel_handler is None for job in self._jobs.values()), _CLEAN_UP)
        for job in self._held():  # threads, and coroutines that refuse to end
            if not job.is_ending:
                self._outcomes.given_back(job)
                job.is_given_back, job.is_lost = False, True
                self._forget(job)
        with self._changed:
            self._changed.wait_for(lambda: not self._jobs)

    def _keep_leases(self) -> None:
        regular = pause = min(self._options.lease.total_seconds() / _RENEWALS, LONGEST_WAIT)
        while not self._over.wait(pause):
            for job in self._held():
                self._renew(job)
            pause = min(regular, self._renewing.pause()) if self._renewing.is_on else regular

    def _renew(self, job: Job) -> None:
        asked_at = time.monotonic()
        try:
            job.renewed(self._store.workflows.runs.renew(job.lease, lease_for=self._options.lease), asked_at)
        except PersistError as error:
            if isinstance(error, LeaseLost | NotFound) and not self._renewing.met(error):
                job.lose()
                return
            self._renewing.failed(error)
            if job.is_expired:
                job.lose()
        else:
            self._renewing.is_over()
