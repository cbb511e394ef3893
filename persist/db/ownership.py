"""Whose a transaction is: of whoever uses it, one at a time, in whatever thread.

A web framework begins a transaction in one thread of its pool, uses it in a second one and ends it in a third. Each of these
calls has a context of its own, as a task has, so that it is the context, and not the thread, that says who is inside of which
transaction. A thread that gives its jobs no contexts of their own counts as one context.
"""

import asyncio
import sys
import threading
from collections.abc import Collection
from contextlib import suppress
from contextvars import ContextVar
from types import FrameType


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if one does."""
    with suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None


class Owner:
    """Whose one transaction is. `looks`: a look at the log of events, which ends by itself and is in nobody's way."""

    __slots__ = ("frame", "holder", "looks", "loop", "open", "using")

    def __init__(self, *, looks: bool = False) -> None:
        self.looks = looks
        self.open = True
        self.using = threading.RLock()
        """Held by the thread that is inside of a verb."""
        self.holder: Mark | None = None
        """The mark of whoever took the transaction up last."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """An event loop that has to go on for the transaction to end."""
        self.frame: FrameType | None = None
        """The call that entered its block."""

    @property
    def is_with_caller(self) -> bool:
        """Whether the caller, or whoever started it, is the one who took it up last."""
        return any(mark is self.holder for mark in _marks.get())

    def take_up(self, frame: FrameType | None = None) -> None:
        """The caller uses it from now on. Whoever was started inside of it uses it for whoever started them."""
        marks = _marks.get()
        for mark in marks:
            if mark.owner is self:
                self.holder = mark
                return
        self.holder = Mark(self)
        self.loop = running_loop() or self.loop
        self.frame = frame or self.frame
        _marks.set((*[mark for mark in marks if mark.owner.open], self.holder))

    def end(self) -> None:
        """It is over, whatever contexts remember of it."""
        self.open = False
        self.holder = self.loop = self.frame = None


class Mark:
    """What a context remembers of a transaction that was begun, or taken up, in it."""

    __slots__ = ("owner", "thread")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.thread = threading.get_ident()

    @property
    def on_stack(self) -> bool:
        """Whether the call that entered the block goes on in this thread, so that the transaction cannot end before it does."""
        here: FrameType | None = sys._getframe()
        while here is not None and here is not self.owner.frame:
            here = here.f_back
        return here is not None

    @property
    def may_be_on_its_way(self) -> bool:
        """Whether it may have been handed to another thread that has not taken it up yet. There is no telling by the context of
        a thread that has one for all its jobs."""
        return self.thread == threading.get_ident() and running_loop() is None and not self.on_stack


def inside(open_: Collection[Owner]) -> Mark | None:
    """The caller's mark on one of these transactions that it is inside of: not if it was handed to somebody else since."""
    for mark in _marks.get():
        if mark.owner in open_ and (mark.owner.holder is mark or mark.on_stack):
            return mark
    return None


def forget_ended() -> None:
    """Let the caller's context keep no mark of a transaction that is over."""
    marks = _marks.get()
    if marks:
        _marks.set(tuple(mark for mark in marks if mark.owner.open))


_marks: ContextVar[tuple[Mark, ...]] = ContextVar("persist_entered", default=())
