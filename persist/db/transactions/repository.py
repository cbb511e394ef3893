"""The base of every repository, how repositories are reached, the decorators that make a method a verb, and its frame.

The frame checks before a verb runs, translates errors, and decides what an error does to the transaction.
"""

from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, Self, TypeVar, cast, overload

from sqlalchemy import NestedTransaction

from persist.db.concurrency.fork_count import PROCESS
from persist.db.connections.host_connections import check_reachable
from persist.db.observation.tracing import VerbTrace
from persist.db.transactions.transaction_events import TransactionEvents
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.transactions.writer_mark import mark, unmark
from persist.db.unreadable.cells import Unreadable, error_of
from persist.errors import Closed, PersistError, ReadOnlyTransaction, StoreForked, TransactionAborted, WrongOwner
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.db.unreadable import results
else:
    results = lazy_module("persist.db.unreadable.results")

R = TypeVar("R")
P = ParamSpec("P")
S = TypeVar("S", bound="Repository")


class on_demand(Generic[R]):  # noqa: N801  # reads as the decorator-like word it is
    """An attribute that is made from the object's `_work` on first access and then kept.

    `find`: returns what makes it, for a class whose module is imported at its first use.
    """

    def __init__(self, make: Callable[[Any], R] | None = None, *, find: Callable[[], Callable[[Any], R]] | None = None) -> None:
        self._make, self._find = make, find

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @property
    def kind(self) -> Any:
        """What makes the attribute: the class, unless it is given a function."""
        if self._make is None:
            assert self._find is not None
            self._make = self._find()
        return self._make

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> R: ...
    def __get__(self, instance: Any, owner: type) -> Self | R:
        if instance is None:
            return self
        made: R = self.kind(instance._work)
        instance.__dict__[self._name] = made
        return made


class TransactionPerVerb:
    """Takes the place of a unit of work in the repositories of a store: each verb runs in a transaction of its own."""

    def __init__(self, run: Callable[[Callable[[UnitOfWork], Any], bool], Any], *, one_writer: bool) -> None:
        self.run = run
        """Runs a function in a new transaction, which writes or only reads."""
        self.one_writer = one_writer
        """Whether a transaction that writes locks the whole database."""
        self._busy: set[str] = set()

    def looks_first(self, verb: str) -> bool:
        """Whether a verb that has a look begins with it: its last call found nothing to do, or there was none."""
        return self.one_writer and verb not in self._busy

    def note(self, verb: str, *, did_something: bool) -> None:
        """Remember whether a call of a verb that has a look did something."""
        (self._busy.add if did_something else self._busy.discard)(verb)


class Domain:
    """The repositories of one domain, as attributes."""

    def __init__(self, work: UnitOfWork | TransactionPerVerb) -> None:
        self._work = work


class Repository:
    """A set of verbs over one aggregate, inside one transaction, or each in a transaction of its own."""

    _work: UnitOfWork
    guarded = False
    """Whether the verbs write tables whose triggers note writers without persist's mark."""

    def __init__(self, work: UnitOfWork | TransactionPerVerb) -> None:
        self._work = cast("UnitOfWork", work)  # verbs see a unit of work: `_verb` makes one if there is none


def reads(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a method a verb that only reads."""
    return _verb(method, writes=False)


def writes(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a method a verb that writes: refused under read(), all or nothing inside join()."""
    return _verb(method, writes=True)


def writes_if_allowed(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a method a verb that writes under begin() and outside of a transaction, and only reads under read()."""
    return _verb(method, writes=False, writes_alone=True)


class NothingToDo(NamedTuple):
    """What a look in a snapshot returns if the verb would write nothing: the verb's result."""

    result: Any


def writes_if_needed(
    look: Callable[..., NothingToDo | None],
) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:
    """Make a method a verb that writes, but that often finds nothing to do, such as one that idle workers repeat.

    Where a writer locks the whole database, a call outside of a transaction begins with `look`, a function of the same arguments,
    in a snapshot, and takes the lock only if there is something to do. After a call that did something (its result is true) the
    next one takes the lock at once: there is probably more.
    """

    def decorate(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        return _verb(method, writes=True, look=look)

    return decorate


def writes_in_parts(
    split: Callable[..., list[Callable[[Any], int]]],
) -> Callable[[Callable[Concatenate[S, P], int]], Callable[Concatenate[S, P], int]]:
    """Make a method a verb that writes and returns a number, and that outside of a transaction is many short ones.

    There `split`, a function of the same arguments, returns what is to be called with the repository, each in a transaction of
    its own; the numbers that these return are added up. If there are none, the method itself runs.
    """

    def decorate(method: Callable[Concatenate[S, P], int]) -> Callable[Concatenate[S, P], int]:
        return _verb(method, writes=True, split=split)

    return decorate


class Split:
    """How a verb outside of a transaction is split into parts."""

    def __init__(self, split: Callable[..., list[Callable[[Any], int]]], name: str, module: str) -> None:
        def part(self: Repository, do: Callable[[Any], int]) -> int:
            return do(self)

        part.__qualname__, part.__module__ = name, module
        self._find, self._part = _verb(split, writes=False), _verb(part, writes=True)

    def find(self, kind: Any, args: Any, kwargs: Any) -> Callable[[UnitOfWork], list[Callable[[Any], int]]]:
        """What finds the parts of a call in a snapshot."""
        return lambda own: self._find(kind(own), *args, **kwargs)

    def run(self, kind: Any, do: Callable[[Any], int]) -> Callable[[UnitOfWork], int]:
        """What runs a part in its own transaction."""
        return lambda own: self._part(kind(own), do)


def _verb(
    method: Callable[Concatenate[S, P], R],
    *,
    writes: bool,
    writes_alone: bool | None = None,
    look: Callable[..., NothingToDo | None] | None = None,
    split: Callable[..., list[Callable[[Any], int]]] | None = None,
) -> Callable[Concatenate[S, P], R]:
    name, writes_alone = method.__qualname__, writes if writes_alone is None else writes_alone
    module = method.__module__
    looks: Any = None if look is None else _verb(look, writes=False)
    splits = None if split is None else Split(split, name, module)

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        work: UnitOfWork | TransactionPerVerb = self._work
        if isinstance(work, TransactionPerVerb):
            if splits is not None:
                parts = work.run(splits.find(type(self), args, kwargs), False)
                if parts:
                    return cast("R", sum(work.run(splits.run(type(self), part), True) for part in parts))
            if looks is not None and work.looks_first(name):
                idle = work.run(lambda own: looks(type(self)(own), *args, **kwargs), False)
                if idle is not None:
                    return cast("R", idle.result)
            done = cast("R", work.run(lambda own: call(type(self)(own), *args, **kwargs), writes_alone))
            if looks is not None:
                work.note(name, did_something=bool(done))
            return done
        with Verb(work, name, writes=writes, guarded=self.guarded, module=module) as verb:
            result = method(self, *args, **kwargs)
            if work.carried and work.depth == 1:
                result = cast("R", results.without_unreadable_cells(result, writes=writes))
            verb.result = result
            return result

    call.writes, call.looks, call.splits = writes_alone, looks, splits  # type: ignore[attr-defined]  # read by async_transactions
    return call


class Verb:
    """The context manager around one verb. A verb that is called inside a verb is part of the outer one."""

    __slots__ = ("_guarded", "_mark", "_module", "_savepoint", "_trace", "_work", "_writes", "name", "result")

    def __init__(self, work: UnitOfWork, name: str, *, writes: bool, guarded: bool = False, module: str = "") -> None:
        """Raise an error if the transaction cannot run such a verb. `module`: that of its function, for who traces it."""
        if work.runtime.forks != PROCESS.forks:  # before any lock is taken: the thread that holds it may not exist here
            raise StoreForked
        if not work.transaction.is_open:
            raise Closed("transaction")
        if work.doomed:
            raise TransactionAborted
        if writes and not work.writable:
            raise ReadOnlyTransaction(name)
        self.name = name
        self._work, self._writes, self._guarded, self._module = work, writes, guarded, module
        self._trace: VerbTrace | None = None
        self._savepoint: NestedTransaction | None = None
        self._mark = (0, 0)

    def __enter__(self) -> Self:
        work = self._work
        if not work.owner.using.acquire(blocking=False):
            raise WrongOwner
        work.depth += 1
        if work.depth > 1:
            return self
        try:
            if not work.transaction.is_open:  # another thread has just ended the transaction
                raise Closed("transaction")
            if work.marks:
                work.owner.set_holder()
            work.wrote = False
            work.carried, work.listing = [], not self._writes
            if work.joined:
                self._join(work)
            journal = work.events.journal
            if journal is not None:
                self._mark = journal.mark()
                journal.begin_verb(self.name)
            if work.transaction.watch is not None:
                self._watched(work)
            return self
        except BaseException as error:
            work.depth -= 1
            work.carried, work.listing = None, False
            work.owner.using.release()
            raise work.runtime.translate(error) from error

    def _watched(self, work: UnitOfWork) -> None:
        transaction = work.transaction
        assert transaction.watch is not None
        transaction.watch.verb = self.name
        if transaction.trace is not None:
            self.result: object = None
            self._trace = transaction.trace.verb(self._module, self.name)

    def _join(self, work: UnitOfWork) -> None:
        connection = work.connection
        check_reachable(connection)
        if not self._writes:
            return
        if work.journal is None and work.runtime.log is not None:
            work.events = TransactionEvents(work.runtime.log)
        work.runtime.transactions.join(connection)
        self._savepoint = connection.begin_nested()
        if work.runtime.marks_writes:
            mark(work)
        if self._guarded:
            work.runtime.transactions.mark_joined(connection, marked=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        work = self._work
        try:
            work.depth -= 1
            if not work.depth:
                carried, work.carried, work.listing = work.carried, None, False
                if error is not None or self._savepoint is not None:
                    self._end(work, error, carried)
        except BaseException as ours:
            error = ours
            raise
        finally:
            if self._trace is not None:
                self._trace.ended(self.result, error)
            work.owner.using.release()

    def _end(self, work: UnitOfWork, error: BaseException | None, carried: list[Unreadable] | None) -> None:
        raised = error
        if carried and isinstance(error, Exception) and not isinstance(work.runtime.translate(error), PersistError):
            error = error_of(carried[0])  # code that got the placeholder failed on it, as timedelta() does
        if self._savepoint is not None:
            error = self._end_joined(self._savepoint, error)
        if error is None:
            return
        if work.journal is not None:
            work.journal.rollback_to(self._mark)
        ours = work.runtime.translate(error)
        if (work.joined or not work.writable) and work.runtime.errors.refuses_writes(error):
            ours = ReadOnlyTransaction(self.name)  # as it was begun, by persist or by the host
        from_database = ours is not error and getattr(error, "orig", None) is not ours
        # a column type may refuse a value before it reaches the database; that needs no rollback
        if (work.wrote or from_database) and not work.joined:
            work.doomed = True
        if ours is not raised:
            raise ours from (raised if ours is error else error)

    def _end_joined(self, savepoint: NestedTransaction, error: BaseException | None) -> BaseException | None:
        """End the savepoint of a verb inside a host's transaction, which survives a refused verb.

        The commit is the host's, so the verb's events are numbered now.
        """
        work = self._work
        if error is None:
            try:
                work.store_events()
                if work.runtime.marks_writes:
                    unmark(work)
                if self._guarded:
                    work.runtime.transactions.mark_joined(work.connection, marked=False)
                savepoint.commit()
            except Exception as failed:
                error = failed
        if error is not None and savepoint.is_active:
            savepoint.rollback()
        return error
