"""Taking over database files that other programs made: a backup first, then everything that is missing, in one transaction."""

from persist.db.operations.upkeep import Notice, Settled
from persist.schema.adopt.adopting import AdoptReport, adopt, adopt_if_foreign

__all__ = ["AdoptReport", "Notice", "Settled", "adopt", "adopt_if_foreign"]
