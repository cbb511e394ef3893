"""The adoption rules of all domains."""

from sqlalchemy import Table

import persist.chat.adopting
import persist.conversations.adopting
import persist.messaging.adopting
import persist.programs.adopting
import persist.telemetry.adopting
import persist.workflows.adopting
from persist.db.operations.adopting import Rules
from persist.schema.metadata import domain_of

ALL = {
    "chat": persist.chat.adopting.RULES,
    "conversations": persist.conversations.adopting.RULES,
    "messaging": persist.messaging.adopting.RULES,
    "programs": persist.programs.adopting.RULES,
    "telemetry": persist.telemetry.adopting.RULES,
    "workflows": persist.workflows.adopting.RULES,
}
_NONE = Rules()


def rules_of(table: Table) -> Rules:
    """The adoption rules of the table's domain; empty rules for a domain without any."""
    return ALL.get(domain_of(table), _NONE)
