"""Who acts in a transaction or a store, as the event log names it."""

from persist.db.schema.column_types import LABEL_BYTES
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import optional_label
from persist.db.values.escaping import utf8_size
from persist.errors import PayloadTooLarge


def check_actor(value: object) -> str | None:
    """A label of at most 600 bytes, or None. Raises InvalidValue, or PayloadTooLarge, before anything is written."""
    actor = optional_label("actor", value)
    if actor is not None and (size := utf8_size(actor)) > LABEL_BYTES:
        raise PayloadTooLarge("actor", size, LABEL_BYTES)
    return actor


def acting(work: UnitOfWork, path: str, named: object) -> str | None:
    """Who acts: the label that is given, else the actor of the transaction, else of the store."""
    return optional_label(path, named) or work.events.actor or work.runtime.actor
