"""`persist work`: a worker from the command line, with what it logs, its health, and its end by Ctrl-C or SIGTERM."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import click

from persist.cli.database import as_json, database_of, database_options, on_command_line, quiet
from persist.cli.health import Address, answering, to_address
from persist.cli.output import Interrupted, cut, instant, printable, say, say_json
from persist.cli.root import Failed
from persist.cli.worker_targets import Handlers, Target, load, to_target
from persist.errors import InvalidValue, PersistError
from persist.workers.worker import AsyncWorker, Worker

_SHOWN = 200


@click.command(short_help="Run the worker, or the handlers, of a module.")
@click.argument("target", metavar="MODULE:NAME", callback=to_target)
@database_options
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="Handle N runs at a time.")
@click.option(
    "--workflow", "workflows", multiple=True, metavar="NAME", help="Claim runs of this workflow alone; may be repeated."
)
@click.option("--until-idle", is_flag=True, help="End when no run can be claimed any more.")
@click.option(
    "--health",
    metavar="HOST:PORT",
    callback=to_address,
    help="Answer HTTP there: 200 while the worker works, else 503. Port 0: any that is free.",
)
@as_json
@quiet("Leave out what the worker does, and what became of it.")
def work(
    target: Target,
    url: str | None,
    schema: str | None,
    concurrency: int | None,
    workflows: tuple[str, ...],
    until_idle: bool,
    health: Address | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run the Worker, the AsyncWorker or the dict of handlers that is called NAME in MODULE, such as app:worker.

    MODULE is looked for in this folder first. A dict has a function for each workflow, `{"triage": triage}`, or has that as
    `handlers` beside options of its worker, `{"handlers": {…}, "lease": …}`. If one of them is a coroutine function, the worker
    is one of an AsyncStore. The store of a dict is that of --url; a worker has its own.

    SIGINT or SIGTERM lets the runs at work end, within the worker's time of grace, and then the exit code is 0; a second one
    interrupts them. An error of a handler is logged on standard error, with --json as an object.
    """
    with _logged(as_json=as_json):
        found = load(target)
        worker = found.worker(database_of(url, schema)) if isinstance(found, Handlers) else found
        try:
            if worker is found and (on_command_line("url") or on_command_line("schema")):
                raise click.UsageError(f"{target} is a worker, which has a store of its own: leave out --url and --schema.")
            try:
                worker.limit(concurrency=concurrency, workflows=workflows or None)
            except InvalidValue as error:
                raise Failed(f"{target}: {error.reason}", type(error).__name__, {"path": error.path}) from error
            _run_and_tell(worker, until_idle=until_idle, health=health, as_json=as_json, quiet=quiet)
        finally:
            _close_store_of(worker)


def _run_and_tell(worker: Worker | AsyncWorker, *, until_idle: bool, health: Address | None, as_json: bool, quiet: bool) -> None:
    about = {"worker": worker.name, "workflows": worker.workflows, "concurrency": worker.concurrency}
    ended = Counter[str]()
    worker.store.on_run_finished(lambda run: ended.update([run.status.value]))
    with _healthy(worker, health, about) as place:
        if as_json:
            say_json(about | {"health": place})
        elif not quiet:
            answers = "" if place is None else f"; its health is at {place}"
            names = cut(", ".join(worker.workflows), _SHOWN)
            say(f"{cut(worker.name, _SHOWN)} handles {names}, {worker.concurrency} at a time{answers}.")
        try:
            if isinstance(worker, AsyncWorker):
                asyncio.run(worker.run(until_idle=until_idle))
            else:
                worker.run(until_idle=until_idle)
        except KeyboardInterrupt as error:
            left = "went back to the queue" if isinstance(worker, AsyncWorker) else "can be claimed when their leases are over"
            raise Interrupted(f"The runs that were at work {left}.") from error
    if as_json:
        say_json({"ended": ended})
    elif not quiet:
        say(f"Ended: {', '.join(f'{count:,} {status}' for status, count in sorted(ended.items())) or 'nothing was done'}.")


@contextmanager
def _healthy(worker: Worker | AsyncWorker, address: Address | None, about: dict[str, object]) -> Iterator[str | None]:
    """The URL at which the worker's health is told during the block; None without an address."""
    if address is None:
        yield None
    else:
        with answering(address, worker.trouble, about) as url:
            yield url


def _close_store_of(worker: Worker | AsyncWorker) -> None:
    """The command has had the worker's store to itself: nobody else closes it."""
    with suppress(PersistError):  # of a handler that did not end
        if isinstance(worker, AsyncWorker):
            asyncio.run(worker.store.close())
        else:
            worker.store.close()


@contextmanager
def _logged(*, as_json: bool) -> Iterator[None]:
    """What persist logs goes to standard error, from INFO on, unless the module has said where."""
    log, handler = logging.getLogger("persist"), _Lines(as_json=as_json)
    level = log.level
    log.addHandler(handler)
    if level == logging.NOTSET:
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


class _Lines(logging.Handler):
    """One line of each record, harmless for a terminal, and the traceback that it has."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json
        self._traces = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        log = logging.getLogger("persist")
        if any(other is not self for other in (*log.handlers, *(logging.root.handlers if log.propagate else ()))):
            return  # the module says where its log goes
        at = datetime.fromtimestamp(record.created, UTC)
        trace = self._traces.formatException(record.exc_info) if record.exc_info else None
        if self._as_json:
            fields = {"at": at.isoformat(), "level": record.levelname.lower(), "message": record.getMessage(), "traceback": trace}
            say_json(fields, err=True)
            return
        text = f"{instant(at)} {record.levelname} {record.getMessage()}"
        say(printable(text if trace is None else f"{text}\n{trace}"), err=True)
