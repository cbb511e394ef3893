"""Values that take the place of what nobody can read, where a row is better mended than moved away: declared by the domains."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Column

from persist.db.work import Work

StandIn = Callable[[Work, Mapping[str, Any]], Mapping[str, Any]]
"""From what can be read of a row, by column, what to set. `…["quarantine"]` is the id under which the row is kept."""
StandIns = Mapping[Column[Any], StandIn]
