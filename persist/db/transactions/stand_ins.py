"""Replacements for unreadable values, declared by the domains, where a row is better repaired than moved to quarantine."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Column

from persist.db.transactions.unit_of_work import UnitOfWork

StandIn = Callable[[UnitOfWork, Mapping[str, Any]], Mapping[str, Any]]
"""Maps the readable values of a row, by column, to the values to set. `…["quarantine"]` is the row's id in quarantine."""
StandIns = Mapping[Column[Any], StandIn]
