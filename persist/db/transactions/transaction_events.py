"""The events of one transaction, where the event log is on."""

from collections.abc import Sequence
from typing import Any

from persist.db.changes.driver_statements import StatementRunner
from persist.db.changes.journal import Journal, VerbChanges
from persist.db.transactions.runtime import EventLog


class TransactionEvents:
    """What one transaction changed, and the log that numbers and stores it. `log` is None where the event log is off.

    `actor`: who acts in the transaction; None stands for the actor of the store.
    """

    __slots__ = ("actor", "journal", "log", "written")

    def __init__(self, log: EventLog | None = None, actor: str | None = None) -> None:
        self.log, self.actor = log, actor
        self.journal = None if log is None else Journal()
        """The changes that are not yet stored as events."""
        self.written: list[Any] = []
        """The events that the transaction has stored so far."""

    def store(self, db: StatementRunner, *more: VerbChanges) -> bool:
        """Store events for the changes so far and for `more`. False if the log is off, or if there were changes but no event."""
        if self.journal is None or self.log is None:
            return False
        changes = [*self.journal.drain(), *more]
        if not changes:
            return True
        events: Sequence[Any] = self.log.write(db, changes, self.actor)
        self.written += events
        return bool(events)

    def ended(self) -> None:
        """Tell the log that the transaction has ended: the events are durable now, or their positions stay unused."""
        if self.written and self.log is not None:
            self.log.ended()


NO_EVENTS = TransactionEvents()
"""For every transaction without an event log."""
