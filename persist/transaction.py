"""A transaction as callers see it: the repositories of every domain over one unit of work."""

from functools import cached_property

from persist.chat.repository import Chat
from persist.conversations.repository import Conversations
from persist.db.work import Work
from persist.messaging.repository import Messaging
from persist.workflows.repository import Workflows


class Transaction:
    """`tx.<domain>.<aggregate>.<verb>`. Belongs to the thread that entered it."""

    def __init__(self, work: Work) -> None:
        self._work = work

    # Made when first asked for: a transaction rarely needs more than one domain.

    @cached_property
    def chat(self) -> Chat:
        """Sessions, messages and system prompts of chats."""
        return Chat(self._work)

    @cached_property
    def workflows(self) -> Workflows:
        """Workflow runs, executions, approvals and overrides."""
        return Workflows(self._work)

    @cached_property
    def conversations(self) -> Conversations:
        """Sessions of branches over shared messages, their exchange, and search by embedding."""
        return Conversations(self._work)

    @cached_property
    def messaging(self) -> Messaging:
        """Sessions and messages of people on chat platforms."""
        return Messaging(self._work)
