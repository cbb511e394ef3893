"""A transaction as callers see it: the repositories of every domain over one unit of work, and the block it lasts for."""

import threading
from types import TracebackType

from persist.chat.repository import Chat
from persist.conversations.repository import Conversations
from persist.db.repository import on_demand
from persist.db.runtime import Runtime
from persist.db.work import Work
from persist.errors import TransactionOpen
from persist.events.repository import Events
from persist.messaging.repository import Messaging
from persist.programs.repository import Programs
from persist.telemetry.repository import Telemetry
from persist.workflows.repository import Workflows


class Transaction:
    """`tx.<domain>.<aggregate>.<verb>`. Belongs to the thread that entered it."""

    chat = on_demand(Chat)
    conversations = on_demand(Conversations)
    events = on_demand(Events)
    messaging = on_demand(Messaging)
    programs = on_demand(Programs)
    telemetry = on_demand(Telemetry)
    workflows = on_demand(Workflows)

    def __init__(self, work: Work) -> None:
        self._work = work


class TransactionBlock:
    """`with store.begin() as tx`: a transaction that commits at the end of the block, and rolls back on an error."""

    __slots__ = ("_runtime", "_work", "_writable")

    def __init__(self, runtime: Runtime, *, writable: bool) -> None:
        self._runtime, self._writable = runtime, writable
        self._work: Work | None = None

    def __enter__(self) -> Transaction:
        if self._work is not None:
            raise TransactionOpen("entering a block a second time")
        work = Work(self._runtime, writable=self._writable, owner=threading.get_ident())
        work.begin()
        self._work = work
        return Transaction(work)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        work = self._work
        assert work is not None
        if kind is not None:
            work.rollback()
        elif self._writable:
            work.commit()
            for topic, value in work.announcements:
                self._runtime.observers.tell(topic, value)
        else:
            work.end_read()
