"""Which context (contextvars) owns a transaction: the one that used it last, in any thread.

A web framework may begin a transaction in one thread of its pool, use it in a second one and end it in a third. Each of these
calls has its own context, as an asyncio task has. Therefore the context, not the thread, tells which transaction the caller is
inside of. A thread that runs all its jobs in one context counts as one owner.
"""

import asyncio
import sys
import threading
from collections.abc import Collection
from contextvars import ContextVar
from types import FrameType


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if one does."""
    return asyncio._get_running_loop()  # the public function raises an error where none runs, which costs more than BEGIN


_RLock = type(threading.RLock())


class Owner:
    """The owner of one transaction. `is_snapshot`: a snapshot of the event log, which ends by itself and blocks no caller."""

    __slots__ = ("frame", "holder", "is_snapshot", "loop", "open", "using")

    def __init__(self, *, is_snapshot: bool = False) -> None:
        self.is_snapshot = is_snapshot
        self.open = True
        self.using = _RLock()
        """Held by the thread that is executing a verb."""
        self.holder: Mark | None = None
        """The mark of the context that used the transaction last."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop that must keep running for the transaction to end."""
        self.frame: FrameType | None = None
        """The stack frame that entered the transaction's `with` block."""

    @property
    def is_with_caller(self) -> bool:
        """Whether the caller's context, or the context it was started from, used the transaction last."""
        return any(mark is self.holder for mark in _marks.get())

    def set_holder(self, frame: FrameType | None = None) -> None:
        """Make the caller's context the holder. A context that was started inside of the transaction shares its parent's mark."""
        marks = _marks.get()
        if marks and marks[-1] is self.holder:
            return
        for mark in marks:
            if mark.owner is self:
                self.holder = mark
                return
        self.holder = Mark(self)
        self.loop = running_loop() or self.loop
        self.frame = frame or self.frame
        _marks.set((*_of_open(marks), self.holder) if marks else (self.holder,))

    def end(self) -> None:
        """The transaction has ended. Contexts may still have marks of it, which no longer count."""
        self.open = False
        self.holder = self.loop = self.frame = None


class Mark:
    """A context's record of a transaction that was begun, or used, in it."""

    __slots__ = ("owner", "thread")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.thread = threading.get_ident()

    @property
    def on_stack(self) -> bool:
        """Whether the frame that entered the block is on this thread's stack: the transaction then outlives the current call."""
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame is not self.owner.frame:
            frame = frame.f_back
        return frame is not None

    @property
    def may_be_on_its_way(self) -> bool:
        """Whether the transaction may have been handed to another thread that has not used it yet.

        In a thread that runs all its jobs in one context, the context alone does not tell.
        """
        return self.thread == threading.get_ident() and running_loop() is None and not self.on_stack


def inside(open_: Collection[Owner]) -> Mark | None:
    """The caller's mark on the one of these transactions that it is inside of; None if another context has taken it over."""
    for mark in _marks.get():
        if mark.owner in open_ and (mark.owner.holder is mark or mark.on_stack):
            return mark
    return None


def forget_ended() -> None:
    """Remove the marks of ended transactions from the caller's context."""
    marks = _marks.get()
    if marks:
        _marks.set(() if len(marks) == 1 and not marks[0].owner.open else _of_open(marks))


def _of_open(marks: tuple[Mark, ...]) -> tuple[Mark, ...]:
    return tuple([mark for mark in marks if mark.owner.open])


_marks: ContextVar[tuple[Mark, ...]] = ContextVar("persist_entered", default=())
