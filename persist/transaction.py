"""A transaction as callers see it: the repositories of every domain over one unit of work."""

from persist.chat.repository import Chat
from persist.db.work import Work
from persist.messaging.repository import Messaging
from persist.workflows.repository import Workflows


class Transaction:
    """`tx.<domain>.<aggregate>.<verb>`. Belongs to the thread that entered it."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.chat = Chat(work)
        self.workflows = Workflows(work)
        self.messaging = Messaging(work)
