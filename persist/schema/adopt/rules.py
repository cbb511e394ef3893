"""The adoption rules of all domains."""

from sqlalchemy import Table as Model

from persist.db.operations.adopting import Rules
from persist.domains import upkeeps
from persist.schema.metadata import domain_of

ALL = {name: rules for name, upkeep in sorted(upkeeps().items()) if (rules := upkeep.adoption) is not None}
_NONE = Rules()


def rules_of(table: Model) -> Rules:
    """The adoption rules of the table's domain; empty rules for a domain without any."""
    return ALL.get(domain_of(table), _NONE)
